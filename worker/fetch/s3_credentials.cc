#include "worker/fetch/s3_credentials.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "common/text.h"

namespace ringmaster::worker {
namespace {

constexpr size_t kMaxCredentialsFile = 1 << 20;

using Section = std::map<std::string, std::string>;

std::string WithoutBlanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The entries of `[profile]`; nothing: there is no such section. Whatever else the file says is
// passed over, as AWS' programs do.
std::optional<Section> ReadProfile(std::istream& file, const std::string& profile) {
  std::optional<Section> found;
  bool inside = false;
  size_t read = 0;
  for (std::string line; std::getline(file, line) && read < kMaxCredentialsFile;) {
    read += line.size() + 1;
    const std::string text = WithoutBlanks(line);
    if (text.starts_with('[') && text.ends_with(']')) {
      inside = WithoutBlanks(text.substr(1, text.size() - 2)) == profile;
      if (inside && !found) found.emplace();
      continue;
    }
    const size_t equals = text.find('=');
    if (!inside || equals == std::string::npos || text.starts_with('#') || text.starts_with(';')) {
      continue;
    }
    (*found)[WithoutBlanks(text.substr(0, equals))] = WithoutBlanks(text.substr(equals + 1));
  }
  return found;
}

// They go into header lines.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

StatusOr<S3Access> AccessWith(const S3Keys& keys, const std::string& where) {
  if (keys.key_id.empty() || keys.secret.empty()) {
    return FailedPrecondition(
        "{}: one of the two keys of S3 is there without the other ({})", where,
        keys.key_id.empty() ? "the key id is missing" : "the secret is missing");
  }
  if (!IsPrintable(keys.key_id) || !IsPrintable(keys.secret) || !IsPrintable(keys.token)) {
    return FailedPrecondition("{}: a key of S3 has blanks or control characters in it", where);
  }
  return S3Access{keys, "signed with the keys of " + where};
}

}  // namespace

std::string EnvironmentVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<S3Access> FindS3Access(const Environment& environment) {
  const S3Keys keys{environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                    environment("AWS_SESSION_TOKEN")};
  if (!keys.key_id.empty() || !keys.secret.empty()) {
    return AccessWith(keys, "the environment (AWS_ACCESS_KEY_ID)");
  }
  const std::string named_file = environment("AWS_SHARED_CREDENTIALS_FILE");
  const std::string named_profile = environment("AWS_PROFILE");
  const std::string path =
      named_file.empty() ? environment("HOME") + "/.aws/credentials" : named_file;
  const std::string profile = named_profile.empty() ? "default" : named_profile;
  std::ifstream file(path);
  const bool readable = file.is_open();
  const std::optional<Section> section = ReadProfile(file, profile);
  if (section) {
    const auto value = [&](const char* key) {
      const auto entry = section->find(key);
      return entry == section->end() ? std::string() : entry->second;
    };
    return AccessWith(
        {value("aws_access_key_id"), value("aws_secret_access_key"), value("aws_session_token")},
        fmt::format("profile {} of {}", profile, path));
  }
  if (!readable && !named_file.empty()) {
    return FailedPrecondition("AWS_SHARED_CREDENTIALS_FILE: {} cannot be read", path);
  }
  if (!named_profile.empty()) {
    return FailedPrecondition("AWS_PROFILE: {} has no profile {}", path,
                              OneLine(profile, kMaxNameText));
  }
  return S3Access{std::nullopt,
                  fmt::format("not signed, since there are no keys: neither AWS_ACCESS_KEY_ID nor "
                              "profile {} of {}",
                              profile, path)};
}

}  // namespace ringmaster::worker
