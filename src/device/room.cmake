set(ROOM_DEPENDS tf_base tf_contract tf_pool tf_system)
set(ROOM_LINKS ${CMAKE_DL_LIBS})
