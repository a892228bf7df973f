# What every target of Lockstep has in common.

# Designated initialisers leave fields at their defaults on purpose. GCC 12 sees overlaps and overflows in the inlined
# code of std::string and std::vector.
set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wno-restrict -Wno-stringop-overflow)
endif()
list(JOIN warnings "," cuda_warnings)
set(cuda_warnings -Xcompiler=${cuda_warnings})
if(LOCKSTEP_WERROR)
  list(APPEND warnings -Werror)
  list(APPEND cuda_warnings -Werror=all-warnings)
endif()
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                                   "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")

function(lockstep_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  # CMake 3.25 does not know that nvcc speaks C++20.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:lockstep_warnings>)
  if(LOCKSTEP_SANITIZE)
    target_compile_options(${name} PUBLIC -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all
                           -fno-omit-frame-pointer -g)
    target_link_options(${name} PUBLIC -fsanitize=${LOCKSTEP_SANITIZE})
  endif()
endfunction()

# lockstep_library(ROOM): the static library lockstep_ROOM, to be linked as Lockstep::ROOM. Its sources are added by the
# folders of the room; includes are written from the root of the repository.
function(lockstep_library room)
  add_library(lockstep_${room} STATIC)
  add_library(Lockstep::${room} ALIAS lockstep_${room})
  target_include_directories(lockstep_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  lockstep_target(lockstep_${room})
endfunction()

# lockstep_program(NAME SOURCE...): an executable of the project.
function(lockstep_program name)
  add_executable(${name} ${ARGN})
  lockstep_target(${name})
endfunction()
