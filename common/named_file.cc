#include "common/named_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace ringmaster {

StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  // Opening a folder succeeds, and reading it would throw.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument("cannot read {} {}: it is a folder", what, path);
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream.is_open() || stream.bad()) {
    return InvalidArgument("cannot read {} {}: {}", what, path, std::strerror(errno));
  }
  return text;
}

}  // namespace ringmaster
