# `cmake --install build/release --prefix /usr`: the program, its limiter where the program looks for it
# (<prefix>/lib/tensor-fusion, see src/cli/limiter_library.cpp), the manual, shell completion and the systemd unit.
install(TARGETS tensor-fusion RUNTIME DESTINATION bin)
install(PROGRAMS ${CMAKE_BINARY_DIR}/lib/libtensor_fusion_limiter.so DESTINATION lib/tensor-fusion)
install(FILES ${CMAKE_SOURCE_DIR}/docs/reference/tensor-fusion.1 DESTINATION share/man/man1)

# What `tensor-fusion bench` starts. The benchmarks look for what they need beside themselves, as in a build folder, and
# all but one measure on simulated cards, so these come along. Where something was not built, `bench` says so.
set(benchmarks libexec/tensor-fusion)
foreach(name card limiter share memory start hypervisor)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/bench/${name}_bench DESTINATION ${benchmarks}/bench OPTIONAL)
endforeach()
install(PROGRAMS ${CMAKE_BINARY_DIR}/limiter_test/load ${CMAKE_BINARY_DIR}/limiter_test/libcuda.so.1
        DESTINATION ${benchmarks}/limiter_test OPTIONAL)
install(PROGRAMS ${CMAKE_BINARY_DIR}/programs/limiter_tenant DESTINATION ${benchmarks}/programs OPTIONAL)
install(PROGRAMS ${CMAKE_BINARY_DIR}/sim/libcuda.so.1 ${CMAKE_BINARY_DIR}/sim/libnvidia-ml.so.1
        DESTINATION ${benchmarks}/sim OPTIONAL)
install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/libexec/tensor-fusion")
  file(MAKE_DIRECTORY "${root}/bin" "${root}/lib")
  file(CREATE_LINK ../../../bin/tensor-fusion "${root}/bin/tensor-fusion" SYMBOLIC)
  file(CREATE_LINK ../../../lib/tensor-fusion/libtensor_fusion_limiter.so
       "${root}/lib/libtensor_fusion_limiter.so" SYMBOLIC)
]])

# What the program prints itself, and a unit that names the place where it was put.
install(CODE "set(program \"${CMAKE_BINARY_DIR}/bin/tensor-fusion\")")
install(CODE "set(unit \"${CMAKE_SOURCE_DIR}/deploy/systemd/tensor-fusion-hypervisor.service\")")
install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  foreach(place "bash|share/bash-completion/completions/tensor-fusion" "zsh|share/zsh/site-functions/_tensor-fusion"
                "fish|share/fish/vendor_completions.d/tensor-fusion.fish")
    string(REPLACE "|" ";" place "${place}")
    list(GET place 0 shell)
    list(GET place 1 file)
    execute_process(COMMAND "${program}" completion ${shell} OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE "${root}/${file}" "${script}")
    message(STATUS "Installing: ${root}/${file}")
  endforeach()
  file(READ "${unit}" text)
  string(REPLACE "/usr/bin/tensor-fusion" "${CMAKE_INSTALL_PREFIX}/bin/tensor-fusion" text "${text}")
  set(file "${root}/lib/systemd/system/tensor-fusion-hypervisor.service")
  file(WRITE "${file}" "${text}")
  message(STATUS "Installing: ${file}")
]])
