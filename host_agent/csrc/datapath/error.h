// Helpers for error messages and checks; the policy is docs/errors.md.
#pragma once

#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace netreduce {

// Concatenates anything that can be streamed.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "sendmmsg to 10.0.0.2:20050: Network is unreachable"
inline std::string system_error(const char* call, const std::string& peer, int error) {
  return cat(call, " ", peer, ": ", std::strerror(error));
}

}  // namespace netreduce

// A condition that a caller must keep: throws std::invalid_argument with both values.
#define NETREDUCE_REQUIRE(left, op, right, ...)                                                              \
  do {                                                                                                       \
    const auto& left_value_ = (left);                                                                        \
    const auto& right_value_ = (right);                                                                      \
    if (!(left_value_ op right_value_))                                                                      \
      throw std::invalid_argument(::netreduce::cat(#left " " #op " " #right " does not hold (", left_value_, \
                                                   " and ", right_value_, "): ", __VA_ARGS__));              \
  } while (0)

// A condition that this library itself must keep: a failure is a bug in it.
#define NETREDUCE_ENFORCE(left, op, right)                                                              \
  do {                                                                                                  \
    const auto& left_value_ = (left);                                                                   \
    const auto& right_value_ = (right);                                                                 \
    if (!(left_value_ op right_value_))                                                                 \
      throw std::logic_error(::netreduce::cat("netreduce bug at " __FILE__ ":", __LINE__, ": " #left    \
                                              " " #op " " #right " does not hold: ", left_value_, " and ", \
                                              right_value_));                                           \
  } while (0)
