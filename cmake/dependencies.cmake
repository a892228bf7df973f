# Finds what Lockstep builds on. Leaves LOCKSTEP_HAS_CUDA, and LOCKSTEP_<PART>_VERSION for each optional part that is in
# (`lockstep --version`). cmake/bootstrap.sh holds the Debian package of each name.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)

# Collectives between CPU ranks.
find_package(Gloo CONFIG QUIET)
if(Gloo_FOUND)
  set(LOCKSTEP_GLOO_VERSION ${Gloo_VERSION})
endif()

include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
