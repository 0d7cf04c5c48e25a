# SPDX-License-Identifier: Apache-2.0
# Installation: header, both libraries, CMake package (tpcomm::tpcomm, tpcomm::tpcomm_static), pkg-config file. Relocatable.
include(CMakePackageConfigHelpers)

set(cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tpcomm")
install(TARGETS tpcomm tpcomm_static EXPORT tpcomm-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET tpcomm-bench)
  install(TARGETS tpcomm-bench RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/include/tpcomm.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(EXPORT tpcomm-targets NAMESPACE tpcomm:: DESTINATION "${cmake_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/tpcomm-config.cmake.in" "${PROJECT_BINARY_DIR}/tpcomm-config.cmake"
                              INSTALL_DESTINATION "${cmake_dir}" NO_SET_AND_CHECK_MACRO)
# Until 1.0 a minor release may break the ABI, as the soname says.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tpcomm-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tpcomm-config.cmake" "${PROJECT_BINARY_DIR}/tpcomm-config-version.cmake"
        DESTINATION "${cmake_dir}")

# pkg-config: everything relative to where the .pc lies, unless the install directories were given as absolute paths.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH up "/prefix/${pc_dir}" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/tpcomm.pc.in" "${PROJECT_BINARY_DIR}/tpcomm.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tpcomm.pc" DESTINATION "${pc_dir}")
