set(ROOM_DEPENDS tf_base tf_contract tf_pool tf_system tf_device)
