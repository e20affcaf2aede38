# yaml-cpp is linked statically: libcuda.so.1 must not bring a shared library of ours into every program.
find_library(TF_YAML_CPP_STATIC NAMES libyaml-cpp.a REQUIRED)
set(ROOM_LINKS ${TF_YAML_CPP_STATIC})
