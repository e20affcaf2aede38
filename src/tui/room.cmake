set(ROOM_DEPENDS tf_base tf_view)
set(ROOM_LINKS fmt ncursesw tinfo)
