#include "common/data/sha256_list.h"

#include <algorithm>
#include <sstream>

namespace ringmaster::data {
namespace {

constexpr size_t kHex = 64;

bool IsEntry(const std::string& line) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  return line.size() > kHex + 2 && std::all_of(line.begin(), line.begin() + kHex, is_hex) &&
         line[kHex] == ' ' && (line[kHex + 1] == ' ' || line[kHex + 1] == '*');
}

}  // namespace

StatusOr<Sha256List> ParseSha256List(const std::string& text) {
  Sha256List list;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!IsEntry(line)) {
      return InvalidArgument(
          "line {}: expected 64 hex digits, two spaces and a name, as sha256sum "
          "prints them; got \"{}\"",
          number, line.substr(0, 100));
    }
    std::string name = line.substr(kHex + 2), hex = line.substr(0, kHex);
    if (name.starts_with("./")) name.erase(0, 2);
    std::transform(hex.begin(), hex.end(), hex.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
    if (!list.emplace(name, hex).second) {
      return InvalidArgument("line {}: {} stands in the list twice", number, name);
    }
  }
  if (list.empty()) return InvalidArgument("it is empty");
  return list;
}

}  // namespace ringmaster::data
