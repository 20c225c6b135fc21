// Contexts: where a person has logged in, and as whom. $XDG_CONFIG_HOME/ringmaster, else
// ~/.config/ringmaster, is this user's alone; in it a folder for each context, NAME, with
// `coordinator`, its HOST:PORT, and `credentials` (common/pki/credential_folder.h), and the file
// `current` with one name. Whoever writes holds the context's `lock`. Nothing here connects to
// anybody. Thread-compatible.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/net/address.h"
#include "common/pki/join.h"
#include "common/pki/key.h"
#include "common/status.h"

namespace ringmaster::cli {

struct Context {
  std::string name;
  Address coordinator;
  std::string credentials;  // their folder
};

class Contexts {
 public:
  explicit Contexts(std::string folder) : folder_(std::move(folder)) {}
  // FAILED_PRECONDITION: neither XDG_CONFIG_HOME nor HOME is an absolute path.
  [[nodiscard]] static StatusOr<Contexts> OfUser();

  // In their order; none where the folder is not there. PERMISSION_DENIED: there are some, and
  // the folder is not this user's alone; the command that mends it. FAILED_PRECONDITION: it cannot
  // be read.
  [[nodiscard]] StatusOr<std::vector<std::string>> Names() const;
  // By name. Errors as of Get.
  [[nodiscard]] StatusOr<std::vector<Context>> List() const;
  // NOT_FOUND: there is none of this name, with the one that was probably meant.
  // FAILED_PRECONDITION: its address cannot be read. Else as Names.
  [[nodiscard]] StatusOr<Context> Get(const std::string& name) const;
  // Empty: nobody has chosen one. Else as Names.
  [[nodiscard]] StatusOr<std::string> CurrentName() const;
  // nullopt: nobody has chosen one. Else as Get.
  [[nodiscard]] StatusOr<std::optional<Context>> Current() const;
  // Whose coordinator is at this HOST:PORT: the current one, else the first by name.
  [[nodiscard]] StatusOr<std::optional<Context>> Of(const Address& coordinator) const;

  // All that write: FAILED_PRECONDITION, also: what cannot be written or removed, and why; another
  // ringctl writes the same context.

  // Makes it the current one. Errors as of Get.
  [[nodiscard]] Status Use(const std::string& name) const;
  // With its key, also one that cannot be read. Where it was the current one, none is. NOT_FOUND.
  [[nodiscard]] Status Remove(const std::string& name) const;
  // Makes the context, or puts these in the place of what it had, and makes it the current one.
  // INVALID_ARGUMENT: no name of a context. Else as WriteCredentials.
  [[nodiscard]] Status Put(const std::string& name, const Address& coordinator, const pki::Key& key,
                           const pki::Issued& issued) const;
  // For whoever writes its credentials.
  [[nodiscard]] StatusOr<std::unique_ptr<FolderLock>> Lock(
      const std::string& name, std::chrono::milliseconds patience) const;

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[nodiscard]] bool Has(const std::string& name) const;
  [[nodiscard]] std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

// INVALID_ARGUMENT: a context's name is one (common/ids.h) that begins with a letter or a digit,
// and is neither `current` nor `profiles`: what else stands in the folder.
[[nodiscard]] Status CheckContextName(const std::string& name);
// The context's name when nobody says one: the host, as far as it can be one.
[[nodiscard]] std::string ContextNameOf(const Address& coordinator);

// HOST:PORT or unix:PATH, when the command line says none: RINGMASTER_COORDINATOR, else the current
// context's, else the package's socket when this user may connect to it, else 127.0.0.1:7700. A
// context that cannot be read is said on stderr.
[[nodiscard]] std::string DefaultCoordinator();

}  // namespace ringmaster::cli
