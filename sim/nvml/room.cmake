set(ROOM_DEPENDS tf_sim_device)
set(ROOM_SHARED libnvidia-ml.so.1)
