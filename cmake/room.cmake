# A room is a folder: its *.cpp become one static library, its *_test.cpp one GoogleTest program, each *_bench.cpp
# and *_fuzz.cpp a program of its own. What it needs stands in the folder's own room.cmake.
include(GoogleTest)

# clang takes warnings from inside the older libstdc++ (stable_sort) for ours.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wno-deprecated-declarations)
endif()

# What libFuzzer steers by is counted in the code under test, so all of it is compiled with the counters.
if(TF_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

# Rooms with threads, or with memory that processes share: their tests also run under the thread sanitizer.
set(TF_THREADED_ROOMS src/guest/limiter/core src/node/hypervisor sim/device sim/ptx sim/cuda sim/nvml)
add_custom_target(threaded_tests)

function(tf_room folder)
  set(path ${CMAKE_SOURCE_DIR}/${folder})
  if(NOT EXISTS ${path})
    return()
  endif()
  string(REGEX REPLACE "^src/" "" name ${folder})
  string(REPLACE "/" "_" name ${name})

  set(ROOM_DEPENDS "")       # other rooms: tf_base …
  set(ROOM_LINKS "")         # system libraries
  set(ROOM_TEST_DEPENDS "")  # rooms only the tests need
  set(ROOM_TEST_PROPERTIES "") # ctest properties of every test of the room
  set(ROOM_SHARED "")        # file name of a shared library of the room's code, in build/…/sim; exports.map says what it exports
  if(EXISTS ${path}/room.cmake)
    include(${path}/room.cmake)
  endif()

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${path}/*.cpp)
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")

  if(sources)
    add_library(tf_${name} STATIC ${sources})
    target_include_directories(tf_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
    target_link_libraries(tf_${name} PUBLIC ${ROOM_DEPENDS} ${ROOM_LINKS} Threads::Threads)
  else()
    add_library(tf_${name} INTERFACE)
    target_include_directories(tf_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
    target_link_libraries(tf_${name} INTERFACE ${ROOM_DEPENDS} ${ROOM_LINKS} Threads::Threads)
  endif()
  if(ROOM_SHARED)
    add_library(${name}_shared SHARED $<TARGET_OBJECTS:tf_${name}>)
    target_link_libraries(${name}_shared PRIVATE ${ROOM_DEPENDS} ${ROOM_LINKS} Threads::Threads)
    target_link_options(${name}_shared PRIVATE -Wl,-soname,${ROOM_SHARED} -Wl,-Bsymbolic
                        -Wl,--version-script=${path}/exports.map)
    set_target_properties(${name}_shared PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${ROOM_SHARED} LINKER_LANGUAGE CXX
                          LINK_DEPENDS ${path}/exports.map LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim)
  endif()
  if(NOT TF_TESTS)
    return()
  endif()

  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE tf_${name} ${ROOM_TEST_DEPENDS} GTest::gtest GTest::gtest_main)
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    if(folder IN_LIST TF_THREADED_ROOMS)
      list(APPEND ROOM_TEST_PROPERTIES LABELS threaded)
      add_dependencies(threaded_tests ${name}_test)
    endif()
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 120 ${ROOM_TEST_PROPERTIES})
  endif()
  if(TF_SANITIZE) # they would measure the sanitizer
    set(benches "")
  endif()
  if(TF_SANITIZE STREQUAL "thread") # one thread each
    set(fuzzers "")
  endif()
  foreach(bench ${benches})
    get_filename_component(stem ${bench} NAME_WE)
    add_executable(${stem} ${bench})
    target_link_libraries(${stem} PRIVATE tf_${name} ${ROOM_TEST_DEPENDS})
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  endforeach()
  # Without libFuzzer a fuzzer is a test: its seeds, what it once found, and some hundred mutations of each.
  foreach(fuzz ${fuzzers})
    get_filename_component(stem ${fuzz} NAME_WE)
    if(TF_FUZZ)
      add_executable(${stem} ${fuzz} ${CMAKE_SOURCE_DIR}/tools/fuzz/write_seeds.cpp)
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    else()
      add_executable(${stem} ${fuzz} ${CMAKE_SOURCE_DIR}/tools/fuzz/replay.cpp)
      string(REGEX REPLACE "_fuzz\\.cpp$" "_corpus" corpus ${fuzz})
      if(NOT EXISTS ${corpus})
        set(corpus "")
      endif()
      add_test(NAME ${name}.fuzz.${stem} COMMAND ${stem} ${corpus})
      set_tests_properties(${name}.fuzz.${stem} PROPERTIES TIMEOUT 120 LABELS fuzz)
    endif()
    target_include_directories(${stem} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${stem} PRIVATE tf_${name} ${ROOM_TEST_DEPENDS})
    set_target_properties(${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  endforeach()
endfunction()
