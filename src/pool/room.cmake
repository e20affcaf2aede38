set(ROOM_DEPENDS tf_base)
