set(ROOM_DEPENDS tf_base)
set(ROOM_LINKS fmt)
