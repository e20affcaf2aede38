set(ROOM_DEPENDS tf_base tf_contract)
