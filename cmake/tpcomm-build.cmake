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

# tpc_sources(FILE ...): add files of the calling folder to the library.
function(tpc_sources)
  foreach(file IN LISTS ARGN)
    set_property(GLOBAL APPEND PROPERTY TPC_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
endfunction()
