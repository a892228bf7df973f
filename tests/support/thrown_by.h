// What a call throws.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace lockstep::testing {

// The text of the ErrorType that `call` throws; a failure where it throws nothing or something else.
template <class ErrorType, class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected another kind of error, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected an error, nothing was thrown";
  return {};
}

}  // namespace lockstep::testing
