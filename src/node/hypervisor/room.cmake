set(ROOM_DEPENDS tf_base tf_contract tf_pool tf_system tf_device)
set(ROOM_TEST_DEPENDS fake_accelerator_path)
