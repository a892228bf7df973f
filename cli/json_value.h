// Reading JSON that somebody else wrote: what is missing, or of another kind than expected, is as if it were left out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>

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
std::optional<T> value_of(const Json& json) {
  const bool fits = std::is_same_v<T, std::string> ? json.is_string()
                    : std::is_same_v<T, bool>      ? json.is_boolean()
                    : std::is_integral_v<T>        ? json.is_number_integer()
                                                   : json.is_number();
  return fits ? std::optional<T>(json.get<T>()) : std::nullopt;
}

template <class T>
T value_of(const Json& json, const char* key, T otherwise = {}) {
  return value_of<T>(entry_of(json, key)).value_or(std::move(otherwise));
}

}  // namespace lockstep::cli
