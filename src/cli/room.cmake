set(ROOM_DEPENDS tf_base tf_contract tf_system tf_device tf_node_hypervisor tf_view tf_tui)
set(ROOM_LINKS fmt)
