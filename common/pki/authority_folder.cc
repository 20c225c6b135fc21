#include "common/pki/authority_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "common/files.h"
#include "common/ids.h"
#include "common/pki/credential_folder.h"
#include "common/pki/private_folder.h"
#include "common/pki/token.h"

namespace ringmaster::pki {
namespace {

constexpr char kCoordinatorName[] = "coordinator";
constexpr size_t kClusterLetters = 16;  // 80 bits: two clusters are never called the same

// Everything in a folder beside it, which then takes its place, where an empty one may be.
Status MakeWhole(const std::string& folder, Time now) {
  const std::string cluster = RandomBase32(kClusterLetters).text();
  RING_ASSIGN_OR_RETURN(const Authority authority, Authority::Create(cluster, now));
  const std::string above = std::filesystem::path(folder).parent_path().string();
  RING_RETURN_IF_ERROR(MakePrivateFolder(above, IfThere::kKeep));
  std::string made = folder + ".new-XXXXXX";
  const auto unavailable = [&](const char* what) {
    return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, folder,
                 std::strerror(errno));
  };
  if (mkdtemp(made.data()) == nullptr) return unavailable("make a folder beside");
  Status status = WriteDurably(made + "/" + kClusterFile, cluster + "\n");
  if (status.ok()) {
    status = WriteDurably(made + "/" + kAuthorityKeyFile, authority.key().ToPem().text());
  }
  if (status.ok()) {
    status = WriteDurably(made + "/" + kAuthorityFile, authority.certificate().ToPem());
  }
  if (status.ok() && std::rename(made.c_str(), folder.c_str()) != 0) {
    status = unavailable("rename to");
  }
  if (!status.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(made, ignored);
    return status;
  }
  return SyncFolder(above);
}

// nullopt: it is not there.
StatusOr<std::optional<Secret>> ReadIfThere(const PrivateFolder& folder, const std::string& name) {
  StatusOr<Secret> content = folder.Read(name);
  if (absl::IsNotFound(content.status())) return std::optional<Secret>();
  if (!content.ok()) return content.status();
  return std::optional<Secret>(*std::move(content));
}

// Of somebody's own authority there is none yet.
StatusOr<std::string> ClusterOf(const PrivateFolder& folder) {
  RING_ASSIGN_OR_RETURN(const auto content, ReadIfThere(folder, kClusterFile));
  const std::string path = folder.path() + "/" + kClusterFile;
  if (!content) {
    const std::string made = RandomBase32(kClusterLetters).text();
    RING_RETURN_IF_ERROR(WriteDurably(path, made + "\n"));
    return made;
  }
  std::string cluster = content->text();
  if (cluster.ends_with('\n')) cluster.pop_back();
  if (!IsName(cluster)) {
    return FailedPrecondition("{} is no name: 1 to {} letters, digits, '.', '_', '-'", path,
                              kMaxNameLength);
  }
  return cluster;
}

}  // namespace

StatusOr<AuthorityFolder> AuthorityFolder::Open(const std::string& path, Time now,
                                                std::chrono::seconds leaf_validity) {
  std::error_code ignored;
  const std::string folder = WholePath(path);
  if (!std::filesystem::exists(folder, ignored)) RING_RETURN_IF_ERROR(MakeWhole(folder, now));
  RING_ASSIGN_OR_RETURN(PrivateFolder files, PrivateFolder::Open(folder));
  RING_ASSIGN_OR_RETURN(auto key, ReadIfThere(files, kAuthorityKeyFile));
  RING_ASSIGN_OR_RETURN(auto certificate, ReadIfThere(files, kAuthorityFile));
  if (!key && !certificate && std::filesystem::is_empty(folder, ignored)) {
    RING_RETURN_IF_ERROR(MakeWhole(folder, now));
    return Open(folder, now, leaf_validity);
  }
  if (!key || !certificate) {
    return FailedPrecondition(
        "{} has no {}: restore it from a backup; or remove the folder, for a new authority, which "
        "everybody has to join again",
        folder, key ? kAuthorityFile : kAuthorityKeyFile);
  }
  StatusOr<Authority> authority = Authority::FromPem(key->text(), certificate->text());
  if (!authority.ok()) {
    return FailedPrecondition("{}, {} and {}: {}", folder, kAuthorityKeyFile, kAuthorityFile,
                              Message(authority.status()));
  }
  RING_ASSIGN_OR_RETURN(std::string cluster, ClusterOf(files));
  AuthorityFolder opened(folder, std::move(cluster), *std::move(authority), leaf_validity);
  RING_RETURN_IF_ERROR(opened.RenewServer(now));
  return opened;
}

Time AuthorityFolder::RenewalDue(Time now) const {
  const StatusOr<Credentials> server = LoadCredentials(this->server());
  if (!server.ok() || server->identity.cluster != cluster_) return now;
  const bool good =
      Verify(server->certificate, {authority_.certificate()}, Side::kServer, now).ok();
  return good ? RenewalOf(server->certificate) : now;
}

Status AuthorityFolder::RenewServer(Time now) const {
  if (RenewalDue(now) > now) return absl::OkStatus();
  // A key that others could read stays one that somebody has to know of.
  const Status there = LoadCredentials(server()).status();
  if (absl::IsPermissionDenied(there)) return there;
  RING_ASSIGN_OR_RETURN(const Key key, Key::Generate());
  RING_ASSIGN_OR_RETURN(const std::string request, key.SigningRequest());
  const Identity identity{cluster_, Kind::kCoordinator, kCoordinatorName};
  RING_ASSIGN_OR_RETURN(const Certificate certificate,
                        authority_.Issue(request, identity, leaf_validity_, now));
  return WriteCredentials(server(), key, certificate, {authority_.certificate()});
}

}  // namespace ringmaster::pki
