#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

// The file then holds `text`, or is as before: it is written under another name and renamed. Makes its directory.
// Throws Error.
void replace_file(const std::filesystem::path& file, const std::string& text);

}  // namespace lockstep
