#include "cli/context.h"

#include <absl/strings/ascii.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/command_line.h"
#include "common/ids.h"
#include "common/pki/private_folder.h"
#include "common/text.h"

namespace ringmaster::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kCurrent[] = "current";
constexpr char kProfiles[] = "profiles";  // of workers, beside the contexts (docs/operations.md)
constexpr char kCoordinator[] = "coordinator";
constexpr char kCredentials[] = "credentials";
constexpr std::chrono::seconds kLockPatience(10);
constexpr char kDefaultCoordinator[] = "127.0.0.1:7700";
constexpr char kSystemSocket[] = "/run/ringmaster/ringmaster.sock";  // deploy/systemd

std::string AbsoluteOf(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : "";  // others are to be ignored, says XDG
}

// A file's one line; empty: it is not there.
StatusOr<std::string> ReadLine(const std::string& folder, const char* name) {
  const auto files = pki::PrivateFolder::Open(folder);
  const auto text = files.ok() ? files->Read(name) : files.status();
  if (text.ok()) return std::string(absl::StripAsciiWhitespace(text->text()));
  if (text.status().code() == absl::StatusCode::kNotFound) return std::string();
  return text.status();
}

// UNAVAILABLE is a coordinator that does not answer, and no disk.
Status OfContextFile(const Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return status;
  return FailedPrecondition("{}", Message(status));
}

Status WriteLine(const std::string& path, const std::string& line) {
  return OfContextFile(WriteDurably(path, line + "\n"));
}

Status NoContext(const std::string& name, const std::vector<std::string>& names) {
  const std::string guess = Nearest(name, names);
  return Error(absl::StatusCode::kNotFound, "there is no context {}; {}", OneLine(name),
               guess.empty() ? "`ringctl context ls` lists all, `ringctl login TOKEN` makes one"
                             : fmt::format("did you mean {}?", guess));
}

bool Same(const Address& a, const Address& b) { return a.host == b.host && a.port == b.port; }

}  // namespace

StatusOr<Contexts> Contexts::OfUser() {
  const std::string config = AbsoluteOf("XDG_CONFIG_HOME"), home = AbsoluteOf("HOME");
  if (!config.empty()) return Contexts(config + "/ringmaster");
  if (!home.empty()) return Contexts(home + "/.config/ringmaster");
  return FailedPrecondition(
      "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is an absolute path; set "
      "one of them");
}

bool Contexts::Has(const std::string& name) const {
  std::error_code ignored;
  return CheckContextName(name).ok() && (fs::exists(PathOf(name) + "/" + kCoordinator, ignored) ||
                                         fs::exists(PathOf(name) + "/" + kCredentials, ignored));
}

// The folder is also that of other things (profiles of workers), and does not have to be private
// before there is a key in it.
StatusOr<std::vector<std::string>> Contexts::Names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (Has(name)) names.push_back(name);
  }
  if (error == std::errc::no_such_file_or_directory) return names;
  if (error) return FailedPrecondition("cannot read {}: {}", folder_, error.message());
  if (!names.empty()) RING_RETURN_IF_ERROR(pki::PrivateFolder::Open(folder_).status());
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<std::vector<Context>> Contexts::List() const {
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  std::vector<Context> contexts;
  for (const std::string& name : names) {
    RING_ASSIGN_OR_RETURN(Context context, Get(name));
    contexts.push_back(std::move(context));
  }
  return contexts;
}

StatusOr<Context> Contexts::Get(const std::string& name) const {
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  if (!Has(name)) return NoContext(name, names);
  RING_ASSIGN_OR_RETURN(const std::string line, ReadLine(PathOf(name), kCoordinator));
  auto address = ParseAddress(line, PathOf(name) + "/" + kCoordinator);
  if (!address.ok()) {
    return FailedPrecondition(
        "{}; `ringctl login TOKEN --context {}` makes the context anew, `ringctl logout {}` "
        "removes it",
        Message(address.status()), name, name);
  }
  return Context{name, *std::move(address), PathOf(name) + "/" + kCredentials};
}

StatusOr<std::string> Contexts::CurrentName() const {
  std::error_code ignored;
  if (!fs::exists(PathOf(kCurrent), ignored)) return std::string();
  return ReadLine(folder_, kCurrent);
}

StatusOr<std::optional<Context>> Contexts::Current() const {
  RING_ASSIGN_OR_RETURN(const std::string name, CurrentName());
  if (name.empty()) return std::optional<Context>();
  RING_ASSIGN_OR_RETURN(Context context, Get(name));
  return std::optional(std::move(context));
}

StatusOr<std::optional<Context>> Contexts::Of(const Address& coordinator) const {
  // A current one that is gone is somebody else's error.
  if (const auto current = Current(); current.ok() && *current) {
    if (Same((*current)->coordinator, coordinator)) return *current;
  }
  RING_ASSIGN_OR_RETURN(const std::vector<Context> contexts, List());
  for (const Context& one : contexts) {
    if (Same(one.coordinator, coordinator)) return std::optional(one);
  }
  return std::optional<Context>();
}

Status Contexts::Use(const std::string& name) const {
  RING_RETURN_IF_ERROR(Get(name).status());
  return WriteLine(PathOf(kCurrent), name);
}

Status Contexts::Remove(const std::string& name) const {
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names());
  if (!Has(name)) return NoContext(name, names);
  RING_ASSIGN_OR_RETURN(const auto lock, Lock(name, kLockPatience));
  RING_ASSIGN_OR_RETURN(const std::string current, CurrentName());
  std::error_code error;
  if (current == name) fs::remove(PathOf(kCurrent), error);
  // The key first: what is left of a folder that cannot be removed is worth nothing.
  if (!error) fs::remove(PathOf(name) + "/" + kCredentials + "/" + pki::kKeyFile, error);
  if (!error) fs::remove_all(PathOf(name), error);
  if (!error) return absl::OkStatus();
  return FailedPrecondition("cannot remove {}: {}", PathOf(name), error.message());
}

StatusOr<std::unique_ptr<FolderLock>> Contexts::Lock(const std::string& name,
                                                     std::chrono::milliseconds patience) const {
  auto lock = FolderLock::Take(PathOf(name), {.flag = "context",
                                              .program = "ringctl",
                                              .patience = patience,
                                              .waits = [](const std::string& /*line*/) {}});
  if (!lock.ok()) return OfContextFile(lock.status());
  return lock;
}

Status Contexts::Put(const std::string& name, const Address& coordinator, const pki::Key& key,
                     const pki::Issued& issued) const {
  RING_RETURN_IF_ERROR(CheckContextName(name));
  RING_RETURN_IF_ERROR(OfContextFile(MakePrivateFolder(folder_)));
  RING_RETURN_IF_ERROR(OfContextFile(MakePrivateFolder(PathOf(name))));
  RING_ASSIGN_OR_RETURN(const auto lock, Lock(name, kLockPatience));
  RING_RETURN_IF_ERROR(OfContextFile(pki::WriteCredentials(
      PathOf(name) + "/" + kCredentials, key, issued.certificate, issued.authorities)));
  RING_RETURN_IF_ERROR(WriteLine(PathOf(name) + "/" + kCoordinator, coordinator.ToString()));
  return WriteLine(PathOf(kCurrent), name);
}

Status CheckContextName(const std::string& name) {
  const bool begins = !name.empty() && std::isalnum(static_cast<unsigned char>(name[0])) != 0;
  if (begins && IsName(name) && name != kCurrent && name != kProfiles) return absl::OkStatus();
  return InvalidArgument(
      "\"{}\" is no name of a context: expected 1 to {} letters, digits, '.', '_', '-', the first "
      "a letter or a digit, and neither {} nor {}",
      OneLine(name, kMaxNameText), kMaxNameLength, kCurrent, kProfiles);
}

std::string ContextNameOf(const Address& coordinator) {
  std::string name;
  for (const char c : coordinator.host) {
    const bool kept = IsName(std::string(1, c)) && (c != '.' || !name.empty());
    if (kept || !name.empty()) name += kept ? c : '-';
  }
  name.resize(std::min(name.size(), kMaxNameLength));
  return CheckContextName(name).ok() ? name : "cluster";
}

std::string DefaultCoordinator() {
  const char* const value = std::getenv("RINGMASTER_COORDINATOR");
  if (value != nullptr && *value != '\0') return value;
  if (const auto contexts = Contexts::OfUser(); contexts.ok()) {
    const auto current = contexts->Current();
    if (!current.ok()) Say("the current context is not used: " + Message(current.status()));
    if (current.ok() && *current) return (*current)->coordinator.ToString();
  }
  // The package's coordinator on this host is there for members of its group.
  if (access(kSystemSocket, W_OK) == 0) return std::string(kUnixScheme) + kSystemSocket;
  return kDefaultCoordinator;
}

}  // namespace ringmaster::cli
