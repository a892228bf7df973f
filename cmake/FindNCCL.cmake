# NCCL, as NCCL::nccl. Looks in NCCL_ROOT, in the wheel of PyPI (which has no libnccl.so) and beside the CUDA toolkit.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${LOCKSTEP_CUDA_WHEELS}/nvidia/nccl/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
             HINTS ${LOCKSTEP_CUDA_WHEELS}/nvidia/nccl/lib ${CUDAToolkit_LIBRARY_DIR})
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM nccl_version REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN nccl_version "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
