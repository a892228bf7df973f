#include "cli/printable.h"

namespace lockstep::cli {

std::string printable(std::string text) {
  unsigned char before = 0;
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_second_set = before == 0xC2 && byte >= 0x80 && byte < 0xA0;  // of control characters, in UTF-8
    if (byte < 0x20 || byte == 0x7F || is_second_set) c = ' ';
    if (is_second_set) (&c)[-1] = ' ';
    before = byte;
  }
  return text;
}

}  // namespace lockstep::cli
