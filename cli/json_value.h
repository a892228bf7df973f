// Reading JSON that somebody else wrote: what is missing or null is as if it were left out; a value that is of another
// kind than expected, or out of range, is refused with its name.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cli/json_file.h"
#include "cli/printable.h"
#include "framework/core/error.h"

namespace lockstep::cli {

using Json = nlohmann::ordered_json;

// The entry, or null.
inline const Json& entry_of(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? null : *found;
}

// The entry where it is an array, else an empty one.
inline const Json& elements_of(const Json& json, const char* key) {
  static const Json none = Json::array();
  const Json& entry = entry_of(json, key);
  return entry.is_array() ? entry : none;
}

template <class T>
struct Range {
  T least = std::numeric_limits<T>::lowest();
  T most = std::numeric_limits<T>::max();
};

// Of what is counted or measured: far more than there ever is, a sum or a product of a few still fits, and no more
// digits than fit a line.
template <class T>
constexpr Range<T> measured_range() {
  if constexpr (std::is_floating_point_v<T>) return {0, 1e18};
  if constexpr (std::is_integral_v<T>) return {0, sizeof(T) < 8 ? std::numeric_limits<T>::max() : T(1ULL << 50)};
  return {};
}

// A number in the range, a text or a truth. Throws std::invalid_argument, naming
// `name`, for anything else.
template <class T>
T read_value(const Json& json, std::string_view name, [[maybe_unused]] Range<T> range = {}) {
  const auto expected = [&](bool good, const std::string& what) {
    expect(good, "{}: expected {}, got {}", name, what, as_text(json).substr(0, 40));
  };
  if constexpr (std::is_same_v<T, std::string>) {
    expected(json.is_string(), "a text");
    return json.get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    expected(json.is_boolean(), "true or false");
    return json.get<bool>();
  } else {
    bool fits = false;
    if constexpr (std::is_floating_point_v<T>) {
      fits = json.is_number() && range.least <= json.get<T>() && json.get<T>() <= range.most;
    } else if (json.is_number_integer()) {
      const auto is_in_range = [&](auto number) {
        return std::cmp_less_equal(range.least, number) && std::cmp_less_equal(number, range.most);
      };
      fits = json.is_number_unsigned() ? is_in_range(json.get<std::uint64_t>()) : is_in_range(json.get<std::int64_t>());
    }
    expected(fits,
             fmt::format("a {}number from {} to {}", std::is_integral_v<T> ? "whole " : "", range.least, range.most));
    return json.get<T>();
  }
}

// The entry, empty where it is missing or null. Numbers are at least 0 unless another range is given, and texts come
// without control characters.
template <class T>
std::optional<T> value_if(const Json& json, const char* key, Range<T> range = measured_range<T>()) {
  const Json& entry = entry_of(json, key);
  if (entry.is_null()) return std::nullopt;
  T value = read_value<T>(entry, key, range);
  if constexpr (std::is_same_v<T, std::string>) value = printable(std::move(value));
  return value;
}

template <class T>
T value_of(const Json& json, const char* key, T otherwise = {}) {
  return value_if<T>(json, key).value_or(std::move(otherwise));
}

// The same for one that must be there.
template <class T>
T needed(const Json& json, const char* key) {
  const std::optional<T> value = value_if<T>(json, key);
  expect(value.has_value(), "{}: expected a value, got none", key);
  return *value;
}

// What `read` returns; the std::invalid_argument that it throws names `source` too.
template <class Read>
auto read_from(const std::string& source, Read read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", source, error.what()));
  }
}

}  // namespace lockstep::cli
