#include "common/pki/authority_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "common/files.h"
#include "common/ids.h"
#include "common/pki/private_folder.h"
#include "common/pki/token.h"

namespace ringmaster::pki {
namespace {

constexpr char kCoordinatorName[] = "coordinator";
constexpr char kHalfMade[] = ".new-";
constexpr size_t kClusterLetters = 16;  // 80 bits: two clusters are never called the same

using Files = std::vector<std::pair<const char*, Secret>>;

// A folder with an authority's files and others, whole: made beside, it then takes the place, where
// an empty one may be.
Status MakeWhole(const std::string& folder, const Authority& authority, Files files) {
  files.emplace_back(kAuthorityKeyFile, authority.key().ToPem());
  files.emplace_back(kAuthorityFile, Secret(authority.certificate().ToPem()));
  std::string made = folder + kHalfMade + "XXXXXX";
  if (mkdtemp(made.data()) == nullptr) return CannotWrite("make a folder beside", folder);
  Status status;
  for (const auto& [name, content] : files) {
    if (status.ok()) status = WriteDurably(made + "/" + name, content.text());
  }
  if (status.ok() && std::rename(made.c_str(), folder.c_str()) != 0) {
    status = CannotWrite("rename to", folder);
  }
  if (!status.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(made, ignored);
    return status;
  }
  return SyncFolder(std::filesystem::path(folder).parent_path().string());
}

Status MakeCluster(const std::string& folder, Time now) {
  const std::string cluster = RandomBase32(kClusterLetters).text();
  RING_ASSIGN_OR_RETURN(const Authority authority, Authority::Create(cluster, now));
  const std::string above = std::filesystem::path(folder).parent_path().string();
  RING_RETURN_IF_ERROR(MakePrivateFolder(above, IfThere::kKeep));
  Files files;
  files.emplace_back(kClusterFile, Secret(cluster + "\n"));
  return MakeWhole(folder, authority, std::move(files));
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

StatusOr<Authority> AuthorityOf(const std::string& folder, const Secret& key,
                                const Secret& certificate) {
  StatusOr<Authority> authority = Authority::FromPem(key.text(), certificate.text());
  if (authority.ok()) return authority;
  return FailedPrecondition("{}, {} and {}: {}", folder, kAuthorityKeyFile, kAuthorityFile,
                            Message(authority.status()));
}

// `folder`/next takes the place of `folder`'s authority, file by file: the key first, so that what
// a crash left is told from a rotation (RotationIn).
Status PutNext(const std::string& folder) {
  const std::string next = folder + "/" + kNextFolder;
  for (const char* const name : {kAuthorityKeyFile, kAuthorityFile}) {
    const std::string from = next + "/" + name, to = folder + "/" + name;
    if (std::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
      return CannotWrite("rename to", to);
    }
    RING_RETURN_IF_ERROR(SyncFolder(folder));
  }
  std::error_code error;
  std::filesystem::remove_all(next, error);
  if (error) return Error(absl::StatusCode::kUnavailable, "{}: {}", next, error.message());
  return absl::OkStatus();
}

// Of a folder `next` without a key: whether PutNext has moved it, and nobody lost it.
Status CheckMoved(const std::string& folder, const PrivateFolder& next) {
  RING_ASSIGN_OR_RETURN(const auto certificate, ReadIfThere(next, kAuthorityFile));
  if (!certificate) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(const PrivateFolder files, PrivateFolder::Open(folder));
  RING_ASSIGN_OR_RETURN(const Secret key, files.Read(kAuthorityKeyFile));
  if (Authority::FromPem(key.text(), certificate->text()).ok()) return absl::OkStatus();
  return FailedPrecondition(
      "{0}/{1} is missing: restore it from a backup; or remove {0}, and no new authority comes",
      next.path(), kAuthorityKeyFile);
}

// nullopt: there is none. One whose end was under way is ended.
StatusOr<std::optional<Rotation>> RotationIn(const std::string& folder) {
  const auto files = PrivateFolder::Open(folder + "/" + kNextFolder);
  if (absl::IsNotFound(files.status())) return std::optional<Rotation>();
  if (!files.ok()) return files.status();
  RING_ASSIGN_OR_RETURN(const auto key, ReadIfThere(*files, kAuthorityKeyFile));
  if (!key) {
    RING_RETURN_IF_ERROR(CheckMoved(folder, *files));
    RING_RETURN_IF_ERROR(PutNext(folder));
    return std::optional<Rotation>();
  }
  RING_ASSIGN_OR_RETURN(const Secret certificate, files->Read(kAuthorityFile));
  RING_ASSIGN_OR_RETURN(Authority next, AuthorityOf(files->path(), *key, certificate));
  RING_ASSIGN_OR_RETURN(const Secret times, files->Read(kTimesFile));
  int64_t signs = 0, ends = 0;
  if (std::sscanf(times.text().c_str(), "%" SCNd64 " %" SCNd64, &signs, &ends) != 2) {
    return FailedPrecondition("{}/{}: expected two numbers, the seconds of two times",
                              files->path(), kTimesFile);
  }
  return std::optional<Rotation>(Rotation{std::move(next), Time(std::chrono::seconds(signs)),
                                          Time(std::chrono::seconds(ends))});
}

Secret TimesOf(const Rotation& rotation) {
  const auto seconds = [](Time time) { return time.time_since_epoch().count(); };
  return Secret(fmt::format("{} {}\n", seconds(rotation.signs), seconds(rotation.ends)));
}

// A rotation's file of times was changed when its coordinator was seen last.
void SetSeen(const std::string& file, Time now) {
  const timespec at = {now.time_since_epoch().count(), 0};
  const timespec both[] = {at, at};
  (void)utimensat(AT_FDCWD, file.c_str(), both, AT_SYMLINK_NOFOLLOW);
}

Time SeenAt(const std::string& file, Time now) {
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return now;
  return std::min(Time(std::chrono::seconds(status.st_mtim.tv_sec)), now);
}

// What a crash of MakeWhole left.
void RemoveHalfMade(const std::string& folder) {
  std::error_code ignored;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(std::string(kNextFolder) + kHalfMade)) found.push_back(entry.path());
  }
  for (const std::filesystem::path& path : found) std::filesystem::remove_all(path, ignored);
}

bool AreSame(const std::vector<Certificate>& a, const std::vector<Certificate>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.ToDer() == y.ToDer(); });
}

}  // namespace

std::vector<Certificate> Authorities::trusted() const {
  std::vector<Certificate> all = {signer.certificate()};
  if (other) all.push_back(other->certificate());
  return all;
}

StatusOr<AuthorityFolder> AuthorityFolder::Open(const std::string& path, Time now,
                                                Options options) {
  std::error_code ignored;
  const std::string folder = WholePath(path);
  if (!std::filesystem::exists(folder, ignored)) RING_RETURN_IF_ERROR(MakeCluster(folder, now));
  RING_ASSIGN_OR_RETURN(PrivateFolder files, PrivateFolder::Open(folder));
  RING_ASSIGN_OR_RETURN(std::optional<Rotation> rotation, RotationIn(folder));
  RING_ASSIGN_OR_RETURN(auto key, ReadIfThere(files, kAuthorityKeyFile));
  RING_ASSIGN_OR_RETURN(auto certificate, ReadIfThere(files, kAuthorityFile));
  if (!key && !certificate && std::filesystem::is_empty(folder, ignored)) {
    RING_RETURN_IF_ERROR(MakeCluster(folder, now));
    return Open(folder, now, options);
  }
  if (!key || !certificate) {
    return FailedPrecondition(
        "{} has no {}: restore it from a backup; or remove the folder, for a new authority, which "
        "everybody has to join again",
        folder, key ? kAuthorityFile : kAuthorityKeyFile);
  }
  RING_ASSIGN_OR_RETURN(Authority authority, AuthorityOf(folder, *key, *certificate));
  RING_ASSIGN_OR_RETURN(std::string cluster, ClusterOf(files));
  AuthorityFolder opened(folder, std::move(cluster), std::move(authority), options);
  RemoveHalfMade(folder);
  if (rotation) RING_RETURN_IF_ERROR(opened.GoOn(*std::move(rotation), now));
  RING_RETURN_IF_ERROR(opened.Tend(now));
  return opened;
}

Status AuthorityFolder::GoOn(Rotation rotation, Time now) {
  const Time signs = rotation.signs, ends = rotation.ends, seen = SeenAt(TimesFile(), now);
  const auto off = now - seen;
  if (off > (ends - signs) / 10) {
    if (seen < signs) rotation.signs += off;
    if (seen < ends) rotation.ends += off;
  }
  // What the old one signs until then may be good for longer than it was when the rotation began.
  if (seen < signs)
    rotation.ends = std::max(rotation.ends, rotation.signs + options_.leaf_validity);
  if (rotation.signs != signs || rotation.ends != ends) {
    RING_RETURN_IF_ERROR(WriteDurably(TimesFile(), TimesOf(rotation).text()));
  }
  MutexLock lock(state_->mu);
  state_->rotation = std::move(rotation);
  return absl::OkStatus();
}

Authorities AuthorityFolder::At(Time now) const {
  MutexLock lock(state_->mu);
  const Authority& current = state_->current;
  const std::optional<Rotation>& rotation = state_->rotation;
  if (!rotation) return {current, std::nullopt, std::nullopt};
  if (now < rotation->signs) return {current, rotation->next, rotation};
  if (now < rotation->ends) return {rotation->next, current, rotation};
  return {rotation->next, std::nullopt, std::nullopt};
}

StatusOr<Credentials> AuthorityFolder::MakeServer(const Authority& signer,
                                                  std::vector<Certificate> trusted,
                                                  Time now) const {
  RING_ASSIGN_OR_RETURN(Key key, Key::Generate());
  RING_ASSIGN_OR_RETURN(const std::string request, key.SigningRequest());
  const Identity identity{cluster_, Kind::kCoordinator, kCoordinatorName};
  RING_ASSIGN_OR_RETURN(Certificate certificate,
                        signer.Issue(request, identity, options_.leaf_validity, now));
  return Credentials{std::move(key), std::move(certificate), std::move(trusted), identity};
}

StatusOr<std::vector<Credentials>> AuthorityFolder::Servers(Time now) const {
  RING_ASSIGN_OR_RETURN(Credentials own, LoadCredentials(server()));
  std::vector<Credentials> all = {std::move(own)};
  const Authorities authorities = At(now);
  if (!authorities.other) return all;
  std::vector<Certificate> trusted = authorities.trusted();
  std::reverse(trusted.begin(), trusted.end());
  RING_ASSIGN_OR_RETURN(Credentials beside,
                        MakeServer(*authorities.other, std::move(trusted), now));
  all.push_back(std::move(beside));
  return all;
}

Time AuthorityFolder::RenewalDue(Time now) const {
  const StatusOr<Credentials> server = LoadCredentials(this->server());
  const Authorities authorities = At(now);
  if (!server.ok() || server->identity.cluster != cluster_ ||
      !AreSame(server->authorities, authorities.trusted())) {
    return now;
  }
  const bool good =
      Verify(server->certificate, {authorities.signer.certificate()}, Side::kServer, now).ok();
  return good ? RenewalOf(server->certificate) : now;
}

Status AuthorityFolder::RenewServer(const Authorities& authorities, Time now) {
  const StatusOr<Credentials> there = LoadCredentials(server());
  // A key that others could read stays one that somebody has to know of.
  if (absl::IsPermissionDenied(there.status())) return there.status();
  const std::vector<Certificate> trusted = authorities.trusted();
  RING_ASSIGN_OR_RETURN(const Credentials made, MakeServer(authorities.signer, trusted, now));
  RING_RETURN_IF_ERROR(WriteCredentials(server(), made.key, made.certificate, made.authorities));
  if (!there.ok() || AreSame(there->authorities, trusted)) return absl::OkStatus();
  MutexLock lock(state_->mu);
  state_->change =
      fmt::format("{} signs; trusted before: {}, now: {}", KeyHashesOf({trusted.front()}),
                  KeyHashesOf(there->authorities), KeyHashesOf(trusted));
  return absl::OkStatus();
}

Status AuthorityFolder::Tend(Time now) {
  if (At(now).rotation) SetSeen(TimesFile(), now);
  if (RenewalDue(now) <= now) RING_RETURN_IF_ERROR(RenewServer(At(now), now));
  return EndRotation(now);
}

Status AuthorityFolder::EndRotation(Time now) {
  MutexLock lock(state_->mu);
  if (!state_->rotation || now < state_->rotation->ends) return absl::OkStatus();
  RING_RETURN_IF_ERROR(PutNext(folder_));
  state_->current = state_->rotation->next;
  state_->rotation.reset();
  return absl::OkStatus();
}

std::string AuthorityFolder::TakeChange() {
  MutexLock lock(state_->mu);
  return std::exchange(state_->change, "");
}

Status AuthorityFolder::Rotate(Time now, Time last_end) {
  MutexLock lock(state_->mu);
  if (state_->rotation) {
    return FailedPrecondition(
        "authority {} is taking the place of {}, which is trusted until {}: rotate again then",
        ShortHash(state_->rotation->next.key().Hash()), ShortHash(state_->current.key().Hash()),
        Shown(state_->rotation->ends));
  }
  RING_ASSIGN_OR_RETURN(Authority next, Authority::Create(cluster_, now));
  const std::chrono::seconds half = options_.overlap / 2;
  const Time signs = std::max(now + half, last_end);
  Rotation rotation{std::move(next), signs, signs + half};
  Files files;
  files.emplace_back(kTimesFile, TimesOf(rotation));
  const std::string folder = folder_ + "/" + kNextFolder;
  Status made = MakeWhole(folder, rotation.next, std::move(files));
  if (!made.ok()) {  // nobody has heard of it
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return made;
  }
  state_->rotation = std::move(rotation);
  SetSeen(TimesFile(), now);
  return absl::OkStatus();
}

}  // namespace ringmaster::pki
