set(ROOM_DEPENDS tf_base tf_contract tf_pool tf_system)
set(ROOM_LINKS ${CMAKE_DL_LIBS})
# A provider library that tests steer through a text file; the daemon's tests use it too.
if(TF_TESTS AND NOT TARGET fake_accelerator)
  add_library(fake_accelerator MODULE ${CMAKE_SOURCE_DIR}/tests/providers/fake_accelerator.cpp)
  target_include_directories(fake_accelerator PRIVATE ${CMAKE_SOURCE_DIR}/src)
  set_target_properties(fake_accelerator PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_library(fake_accelerator_path INTERFACE)
  target_compile_definitions(fake_accelerator_path INTERFACE FAKE_ACCELERATOR_LIBRARY="$<TARGET_FILE:fake_accelerator>")
  add_dependencies(fake_accelerator_path fake_accelerator)
endif()
set(ROOM_TEST_DEPENDS fake_accelerator_path)
# The built-in NVIDIA provider's tests find the simulated management library where it has been built.
set(ROOM_TEST_PROPERTIES ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/sim)
