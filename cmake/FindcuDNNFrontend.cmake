# The headers of cuDNN's C++ front end, as cuDNN::frontend. Looks in cuDNNFrontend_ROOT and in the wheel of PyPI.
find_path(cuDNNFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${LOCKSTEP_CUDA_WHEELS}/include)
if(cuDNNFrontend_INCLUDE_DIR)
  file(STRINGS ${cuDNNFrontend_INCLUDE_DIR}/cudnn_frontend_version.h frontend_version
       REGEX "#define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION ")
  list(TRANSFORM frontend_version REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN frontend_version "." cuDNNFrontend_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNNFrontend REQUIRED_VARS cuDNNFrontend_INCLUDE_DIR
                                  VERSION_VAR cuDNNFrontend_VERSION)
mark_as_advanced(cuDNNFrontend_INCLUDE_DIR)
if(cuDNNFrontend_FOUND AND NOT TARGET cuDNN::frontend)
  add_library(cuDNN::frontend INTERFACE IMPORTED)
  target_include_directories(cuDNN::frontend SYSTEM INTERFACE ${cuDNNFrontend_INCLUDE_DIR})
  target_link_libraries(cuDNN::frontend INTERFACE cuDNN::cudnn)
endif()
