# Toolchain of the fuzz preset: the newest clang of those that tools/dev/packages.txt names.
find_program(TF_CLANG NAMES clang-19 clang-18 REQUIRED)
find_program(TF_CLANGXX NAMES clang++-19 clang++-18 REQUIRED)
set(CMAKE_C_COMPILER ${TF_CLANG})
set(CMAKE_CXX_COMPILER ${TF_CLANGXX})
