set(ROOM_DEPENDS tf_base tf_contract tf_system tf_sim_device tf_sim_ptx)

# The driver library that programs load: all of this room, nothing visible but the driver's symbols.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/sim/empty.cpp CONTENT "" @ONLY) # keeps what is there: else each configure relinks
add_library(sim_cuda_driver SHARED ${CMAKE_BINARY_DIR}/sim/empty.cpp)
set_target_properties(sim_cuda_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 VERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim)
target_link_libraries(sim_cuda_driver PRIVATE -Wl,--whole-archive tf_sim_cuda -Wl,--no-whole-archive)
target_link_options(sim_cuda_driver PRIVATE -Wl,-Bsymbolic
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/sim/cuda/exports.map)
set_target_properties(sim_cuda_driver PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/sim/cuda/exports.map)
