# Horovod asks CMake for C++14; torch's headers need C++20. CMake sets the options of its compilers after it has
# read this file, so the replacement is included later, where Horovod's project begins.
set(CMAKE_PROJECT_horovod_INCLUDE "${CMAKE_CURRENT_LIST_DIR}/cxx20.cmake")
