# SPDX-License-Identifier: Apache-2.0
# Compiler settings shared by the library, the bench and the tests, and the list of the library's sources.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Flags of every target. The numbers contract (docs/numerics.md) forbids contraction and fast math.
add_library(tpc_flags INTERFACE)
target_compile_options(tpc_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off -fno-math-errno)
target_compile_definitions(tpc_flags INTERFACE _GNU_SOURCE)
if(TPCOMM_WERROR)
  target_compile_options(tpc_flags INTERFACE -Werror)
endif()
if(TPCOMM_SANITIZE STREQUAL "address")
  target_compile_options(tpc_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(tpc_flags INTERFACE -fsanitize=address,undefined)
elseif(TPCOMM_SANITIZE STREQUAL "thread")
  target_compile_options(tpc_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g)
  target_link_options(tpc_flags INTERFACE -fsanitize=thread)
elseif(NOT TPCOMM_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TPCOMM_SANITIZE=${TPCOMM_SANITIZE}: allowed are empty, address, thread")
endif()

# cJSON is loaded at run time; only its header is needed to build.
find_path(TPCOMM_CJSON_INCLUDE_DIR cjson/cJSON.h)
if(NOT TPCOMM_CJSON_INCLUDE_DIR)
  message(FATAL_ERROR "cjson/cJSON.h not found: install libcjson-dev (Debian, Ubuntu), cjson-devel (Fedora) or cjson (conda)")
endif()
mark_as_advanced(TPCOMM_CJSON_INCLUDE_DIR)

# tpc_sources([WITH_CUDA | WITHOUT_CUDA] FILE ...): add files of the calling folder to the library, or to that of such a build alone. What a
# build with CUDA has is known in every build: TPC_SOURCES_WITH_CUDA (tests/cuda_on_host).
function(tpc_sources)
  cmake_parse_arguments(S "WITH_CUDA;WITHOUT_CUDA" "" "" ${ARGN})
  foreach(file IN LISTS S_UNPARSED_ARGUMENTS)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    if(NOT (S_WITH_CUDA AND NOT TPCOMM_HAVE_CUDA) AND NOT (S_WITHOUT_CUDA AND TPCOMM_HAVE_CUDA))
      set_property(GLOBAL APPEND PROPERTY TPC_SOURCES "${path}")
    endif()
    if(NOT S_WITHOUT_CUDA)
      set_property(GLOBAL APPEND PROPERTY TPC_SOURCES_WITH_CUDA "${path}")
    endif()
  endforeach()
endfunction()

# tpc_cuda_sources(FILE ...): add .cu files of the calling folder to the library.
function(tpc_cuda_sources)
  foreach(file IN LISTS ARGN)
    set_property(GLOBAL APPEND PROPERTY TPC_CUDA_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
endfunction()

# Compile them by nvcc, once, for every library. CMake's own CUDA language would make every consumer link by nvcc; these objects
# need nothing but the static CUDA runtime.
# tpc_compile_cuda(OBJECTS FILE ...): OBJECTS becomes the list of their object files. Where tests are built, what nvcc makes on its way stays
# in the folder "kept", and what ptxas -v says of it in OBJECT.log: the test kernels_code looks at them.
function(tpc_compile_cuda objects_p)
  set(files "${ARGN}")
  set(flags -std=c++17 -O3 -fmad=false -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra)
  foreach(arch IN LISTS TPCOMM_CUDA_ARCHITECTURES)
    list(APPEND flags "-gencode=arch=compute_${arch},code=sm_${arch}")
  endforeach()
  list(GET TPCOMM_CUDA_ARCHITECTURES -1 newest)
  list(APPEND flags "-gencode=arch=compute_${newest},code=compute_${newest}")
  if(TPCOMM_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  if(DEFINED ENV{CUDAHOSTCXX} AND NOT "$ENV{CUDAHOSTCXX}" STREQUAL "")
    list(APPEND flags -ccbin "$ENV{CUDAHOSTCXX}")
  endif()
  set(objects "")
  set(kept "${CMAKE_CURRENT_BINARY_DIR}/kept")
  if(TPCOMM_BUILD_TESTS)
    file(MAKE_DIRECTORY "${kept}")
    list(APPEND flags -Xptxas=-v --keep "--keep-dir=${kept}")
  endif()
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    get_filename_component(folder "${file}" DIRECTORY)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.cu${CMAKE_C_OUTPUT_EXTENSION}")
    set(logged "")
    if(TPCOMM_BUILD_TESTS)
      set(logged sh "${PROJECT_SOURCE_DIR}/cmake/nvcc-logged.sh" "${object}.log")
    endif()
    file(GLOB headers CONFIGURE_DEPENDS "${folder}/*.cuh" "${folder}/*.h" "${PROJECT_SOURCE_DIR}/src/custom_ar/*.cuh" "${PROJECT_SOURCE_DIR}/src/custom_ar/*.h")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND ${logged} "${TPCOMM_NVCC}" ${flags} "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/src" "-I${folder}" -c -o "${object}" "${file}"
      DEPENDS "${file}" ${headers} "${PROJECT_SOURCE_DIR}/include/tpcomm.h"
      COMMENT "Compiling ${name}.cu by nvcc" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${objects_p} "${objects}" PARENT_SCOPE)
endfunction()
