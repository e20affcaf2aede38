# The arithmetic is compiled once per instruction set and chosen when a module is parsed. Each set is a library of small
# generated sources, because compile flags belong to a source file.
set(tf_ptx_isas baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND tf_ptx_isas avx2 avx512)
endif()
set(tf_ptx_flags_baseline "")
set(tf_ptx_flags_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt)
set(tf_ptx_flags_avx512 ${tf_ptx_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mprefer-vector-width=512)
foreach(isa ${tf_ptx_isas})
  if(NOT TARGET tf_sim_ptx_${isa})
    set(generated "")
    foreach(part logic integer bits floating half convert math memory mask table)
      set(file ${CMAKE_BINARY_DIR}/generated/ptx/${part}_${isa}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "#define TF_PTX_ISA ${isa}\n#include \"sim/ptx/alu/${part}.h\"\n" @ONLY)
      list(APPEND generated ${file})
    endforeach()
    add_library(tf_sim_ptx_${isa} STATIC ${generated})
    target_include_directories(tf_sim_ptx_${isa} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
    # No fusing and no shortcuts: the same bits from every set. Narrow integers convert all the time here.
    target_compile_options(tf_sim_ptx_${isa} PRIVATE $<IF:$<BOOL:${TF_SANITIZE}>,-O1,-O3> -ffp-contract=off -fno-math-errno -fno-trapping-math
      -Wno-conversion -Wno-unused-function $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed> ${tf_ptx_flags_${isa}})
    # Kernels race as their authors meant them to: the thread sanitizer watches the baseline only, in tests of its own.
    if(TF_SANITIZE STREQUAL "thread" AND NOT isa STREQUAL baseline)
      target_compile_options(tf_sim_ptx_${isa} PRIVATE -fno-sanitize=all)
    endif()
  endif()
  list(APPEND ROOM_LINKS tf_sim_ptx_${isa})
endforeach()
# The scheduler's loops over masks are short and hot.
set_source_files_properties(${path}/batch.cpp ${path}/batch_control.cpp ${path}/batch_inputs.cpp PROPERTIES COMPILE_OPTIONS -O3)

# Tests and benchmarks find their kernels beside their own program, wherever it is started from.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/testdata)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/sim/ptx/testdata ${CMAKE_BINARY_DIR}/testdata/ptx SYMBOLIC)
