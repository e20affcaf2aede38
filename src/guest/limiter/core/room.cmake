set(ROOM_DEPENDS tf_contract)
