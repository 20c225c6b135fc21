#include "common/pki/credential_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/files.h"
#include "common/pki/authority.h"
#include "common/pki/private_folder.h"

namespace ringmaster::pki {
namespace {

namespace fs = std::filesystem;

constexpr char kGeneration[] = ".generation-";
constexpr size_t kRandomLetters = 6;  // of mkdtemp

// The same error with the file in front of it.
Status Of(const PrivateFolder& folder, const char* file, const Status& status) {
  return FailedPrecondition("{}/{}: {}", folder.path(), file, Message(status));
}

// gRPC tells that it has read parts of two generations by the seconds of their times: each one's
// are later than those of the one before.
Status DateAfter(const std::string& before, const std::string& generation) {
  struct stat old = {}, made = {};
  if (stat((before + "/" + kKeyFile).c_str(), &old) != 0) return absl::OkStatus();
  for (const char* const name : {kKeyFile, kCertificateFile, kAuthoritiesFile}) {
    const std::string path = generation + "/" + name;
    if (stat(path.c_str(), &made) != 0) return CannotWrite("read the time of", path);
    const time_t seconds = std::max(made.st_mtim.tv_sec, old.st_mtim.tv_sec + 1);
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    if (utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) return CannotWrite("date", path);
  }
  return absl::OkStatus();
}

Status WriteGeneration(const std::string& generation, const Key& key,
                       const Certificate& certificate,
                       const std::vector<Certificate>& authorities) {
  RING_RETURN_IF_ERROR(WriteDurably(generation + "/" + kKeyFile, key.ToPem().text()));
  RING_RETURN_IF_ERROR(WriteDurably(generation + "/" + kCertificateFile, certificate.ToPem()));
  return WriteDurably(generation + "/" + kAuthoritiesFile, ToPem(authorities));
}

// The link `folder` leads to `generation` from now on, at once and for good.
Status Swap(const std::string& folder, const std::string& generation) {
  const std::string link = generation + "/link";  // renamed out of it
  const std::string target = fs::path(generation).filename().string();
  if (symlink(target.c_str(), link.c_str()) != 0) return CannotWrite("make a link", link);
  if (std::rename(link.c_str(), folder.c_str()) != 0) {
    const Status status = CannotWrite("rename to", folder);
    unlink(link.c_str());
    return status;
  }
  return SyncFolder(fs::path(folder).parent_path().string());
}

// Everything else that WriteCredentials made beside `folder`. What cannot be removed is no error:
// the next one tries again.
void RemoveOthers(const std::string& folder, const std::string& generation) {
  const std::string kept = fs::path(generation).filename().string();
  const std::string prefix = fs::path(folder).filename().string() + kGeneration;
  std::error_code ignored;
  std::vector<fs::path> others;
  fs::directory_iterator entry(fs::path(folder).parent_path(), ignored);
  for (; !ignored && entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const bool ours = name.starts_with(prefix) && name.size() == prefix.size() + kRandomLetters;
    if (ours && name != kept) others.push_back(entry->path());
  }
  for (const fs::path& other : others) fs::remove_all(other, ignored);
}

}  // namespace

StatusOr<Credentials> LoadCredentials(const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const PrivateFolder files, PrivateFolder::Open(folder));
  RING_ASSIGN_OR_RETURN(const Secret key_pem, files.Read(kKeyFile));
  RING_ASSIGN_OR_RETURN(const Secret certificate_pem, files.Read(kCertificateFile));
  RING_ASSIGN_OR_RETURN(const Secret authorities_pem, files.Read(kAuthoritiesFile));
  StatusOr<Key> key = Key::FromPem(key_pem.text());
  if (!key.ok()) return Of(files, kKeyFile, key.status());
  const auto certificates = CertificatesFromPem(certificate_pem.text());
  if (!certificates.ok()) return Of(files, kCertificateFile, certificates.status());
  auto authorities = CertificatesFromPem(authorities_pem.text());
  if (!authorities.ok()) return Of(files, kAuthoritiesFile, authorities.status());
  for (const Certificate& one : *authorities) {
    if (one.is_authority()) continue;
    return Of(files, kAuthoritiesFile, InvalidArgument("one of them is not an authority's"));
  }
  const Certificate& certificate = certificates->front();  // those behind it would be its chain
  if (certificate.KeyHash() != key->Hash()) {
    return FailedPrecondition(
        "{} and {} in {} do not match: the key is {}, the certificate is of key {}", kKeyFile,
        kCertificateFile, folder, ShortHash(key->Hash()), ShortHash(certificate.KeyHash()));
  }
  auto identity = IdentityOf(certificate);
  if (!identity.ok()) return Of(files, kCertificateFile, identity.status());
  return Credentials{*std::move(key), certificate, *std::move(authorities), *std::move(identity)};
}

Status WriteCredentials(const std::string& path, const Key& key, const Certificate& certificate,
                        const std::vector<Certificate>& authorities) {
  if (certificate.KeyHash() != key.Hash()) {
    return FailedPrecondition("the certificate is of key {}, not of {}",
                              ShortHash(certificate.KeyHash()), ShortHash(key.Hash()));
  }
  RING_RETURN_IF_ERROR(IdentityOf(certificate).status());
  const std::string folder = WholePath(path);
  if (struct stat there = {}; lstat(folder.c_str(), &there) == 0 && !S_ISLNK(there.st_mode)) {
    return FailedPrecondition(
        "{} is not a symbolic link, so ringmaster has not made it; move it away", folder);
  }
  RING_RETURN_IF_ERROR(MakePrivateFolder(fs::path(folder).parent_path().string(), IfThere::kKeep));
  std::string generation = folder + kGeneration + std::string(kRandomLetters, 'X');
  if (mkdtemp(generation.data()) == nullptr) return CannotWrite("make a folder beside", folder);
  Status status = WriteGeneration(generation, key, certificate, authorities);
  if (status.ok()) status = DateAfter(folder, generation);
  if (status.ok()) status = Swap(folder, generation);
  if (!status.ok()) {
    // Where the link may lead there, it stays.
    std::error_code ignored;
    if (!fs::equivalent(folder, generation, ignored)) fs::remove_all(generation, ignored);
    return status;
  }
  RemoveOthers(folder, generation);
  return absl::OkStatus();
}

Status SelfCheck(const std::string& folder, Time now, const std::string& remedy) {
  const auto with_remedy = [&remedy](const Status& status) {
    return Status(status.code(), fmt::format("{}; {}", Message(status), remedy));
  };
  const StatusOr<Credentials> own = LoadCredentials(folder);
  if (!own.ok()) return with_remedy(own.status());
  const auto identity = Verify(own->certificate, own->authorities, Side::kClient, now);
  return identity.ok() ? absl::OkStatus() : with_remedy(Annotate(identity.status(), folder));
}

}  // namespace ringmaster::pki
