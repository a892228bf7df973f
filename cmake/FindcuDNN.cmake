# cuDNN 9, as cuDNN::cudnn. Looks in cuDNN_ROOT, in the wheel of PyPI (which has no libcudnn.so) and beside the CUDA
# toolkit.
find_path(cuDNN_INCLUDE_DIR cudnn_version.h HINTS ${LOCKSTEP_CUDA_WHEELS}/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
             HINTS ${LOCKSTEP_CUDA_WHEELS}/nvidia/cudnn/lib ${CUDAToolkit_LIBRARY_DIR})
if(cuDNN_INCLUDE_DIR)
  file(STRINGS ${cuDNN_INCLUDE_DIR}/cudnn_version.h cudnn_version REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  list(TRANSFORM cudnn_version REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN cudnn_version "." cuDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)
if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(cuDNN::cudnn PROPERTIES IMPORTED_LOCATION ${cuDNN_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${cuDNN_INCLUDE_DIR})
endif()
