#include "worker/fetch/url_source.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/data/data_url.h"
#include "common/data/manifest.h"
#include "common/data_files/file_list.h"
#include "common/mutex.h"
#include "common/text.h"
#include "worker/fetch/http_place.h"
#include "worker/fetch/s3_place.h"

namespace ringmaster::worker {
namespace {

static_assert(data::kManifestPieceBytes == kPieceBytes);

constexpr size_t kMaxVersion = 256;

// Of an answer: its ETag, else when it was changed last; empty: neither, or nothing for a header.
std::string VersionOf(const HttpResponse& response) {
  const std::string& version = response.etag.empty() ? response.last_modified : response.etag;
  const bool good =
      version.size() <= kMaxVersion &&
      std::all_of(version.begin(), version.end(), [](char c) { return c >= ' ' && c < 0x7f; });
  return good ? version : "";
}

// The header that makes a server answer 412 when the file has another version; empty: there is
// none, as a weak ETag never matches there (RFC 9110, section 13.1.1), but the answer's is
// compared.
std::string ConditionOf(const std::string& version) {
  if (version.empty() || version.starts_with("W/")) return "";
  return (version.starts_with('"') ? "If-Match: " : "If-Unmodified-Since: ") + version;
}

class UrlSource final : public PieceSource {
 public:
  UrlSource(std::unique_ptr<UrlPlace> place, const HttpOptions& options)
      : place_(std::move(place)), client_(options) {}

  std::string name() const override { return place_->name(); }
  StatusOr<std::vector<SourceFile>> List(const FetchLimits& limits) override;
  Status Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
              const FetchLimits& limits) override;

 private:
  StatusOr<std::vector<SourceFile>> ListFile(const FetchLimits& limits);
  StatusOr<std::vector<SourceFile>> ListFolder(const FetchLimits& limits);
  StatusOr<std::vector<SourceFile>> FilesOf(const std::string& manifest) const;
  Status CheckList(std::vector<SourceFile>* files) const;
  // The version that reads of a file are of: what was listed, or else what the first read had.
  std::string KnownVersion(const SourceFile& file);
  Status CheckVersion(const SourceFile& file, const std::string& known,
                      const HttpResponse& response);

  const std::unique_ptr<const UrlPlace> place_;
  HttpClient client_;
  Mutex mu_;
  std::unordered_map<std::string, std::string> seen_ ABSL_GUARDED_BY(mu_);  // name -> version
};

StatusOr<std::vector<SourceFile>> UrlSource::ListFile(const FetchLimits& limits) {
  const std::string file = place_->url().file_name();
  HttpRequest request = place_->RequestOf(file);
  request.method = HttpRequest::Method::kHead;
  RING_ASSIGN_OR_RETURN(const HttpResponse response, client_.Do(request, limits));
  if (response.status != 200) return place_->ErrorOf(response, file);
  const bool encoded =
      !response.content_encoding.empty() && response.content_encoding != "identity";
  if (!response.length || *response.length > INT64_MAX || encoded) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the server does not say how long it is{}; serve it as a plain file",
                 place_->name(), encoded ? ", but compresses it" : "");
  }
  return std::vector<SourceFile>{
      {.name = file, .bytes = *response.length, .pieces = {}, .version = VersionOf(response)}};
}

StatusOr<std::vector<SourceFile>> UrlSource::FilesOf(const std::string& manifest) const {
  auto parsed = data::ParseDataManifest(manifest);
  if (!parsed.ok()) return Annotate(parsed.status(), place_->name());
  std::vector<SourceFile> files;
  files.reserve(parsed->size());
  for (data::ManifestFile& file : *parsed) {
    files.push_back({.name = std::move(file.name),
                     .bytes = file.bytes,
                     .pieces = std::move(file.pieces),
                     .version = {}});
  }
  return files;
}

StatusOr<std::vector<SourceFile>> UrlSource::ListFolder(const FetchLimits& limits) {
  HttpRequest request = place_->RequestOf(data::kDataManifestName);
  request.max_body = data::kMaxDataManifestBytes;
  RING_ASSIGN_OR_RETURN(const HttpResponse response, client_.Do(request, limits));
  if (response.status == 200) return FilesOf(response.body);
  if (!place_->IsAbsent(response)) return place_->ErrorOf(response, data::kDataManifestName);
  RING_ASSIGN_OR_RETURN(std::vector<SourceFile> files, place_->ListFolder(&client_, limits));
  // As in a folder of a disk, what begins with a dot is none of the dataset's.
  std::erase_if(files, [](const SourceFile& file) {
    const bool hidden = data_files::IsHidden(file.name) && data::CheckFileName(file.name).ok();
    return hidden || file.name == data::kDataManifestName;
  });
  return files;
}

// Names as they may lie in a folder here, sizes that can be added up.
Status UrlSource::CheckList(std::vector<SourceFile>* files) const {
  if (files->empty()) {
    return Error(absl::StatusCode::kNotFound, "{}: there are no files in it", place_->name());
  }
  std::ranges::sort(*files, {}, &SourceFile::name);
  std::vector<std::string> names;
  uint64_t total = 0;
  for (const SourceFile& file : *files) {
    RING_RETURN_IF_ERROR(Annotate(data::CheckFileName(file.name), place_->name()));
    if (file.bytes > static_cast<uint64_t>(INT64_MAX) - total) {
      return InvalidArgument("{}: the sizes of its files are together over 2^63 bytes",
                             place_->name());
    }
    total += file.bytes;
    names.push_back(file.name);
  }
  return Annotate(data::CheckFileNames(names), place_->name());
}

StatusOr<std::vector<SourceFile>> UrlSource::List(const FetchLimits& limits) {
  {
    const MutexLock lock(mu_);
    seen_.clear();
  }
  auto files = place_->url().folder() ? ListFolder(limits) : ListFile(limits);
  RING_RETURN_IF_ERROR(files.status());
  RING_RETURN_IF_ERROR(CheckList(&*files));
  return files;
}

std::string UrlSource::KnownVersion(const SourceFile& file) {
  if (!file.version.empty()) return file.version;
  const MutexLock lock(mu_);
  const auto seen = seen_.find(file.name);
  return seen == seen_.end() ? "" : seen->second;
}

Status UrlSource::CheckVersion(const SourceFile& file, const std::string& known,
                               const HttpResponse& response) {
  const std::string now = VersionOf(response);
  if (known.empty() && !now.empty()) {
    const MutexLock lock(mu_);
    const auto [seen, is_new] = seen_.emplace(file.name, now);
    if (is_new || seen->second == now) return absl::OkStatus();
  } else if (known == now || now.empty()) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      "{}: {} changed while it was fetched: its version is {} by now; start the job again once it "
      "is whole",
      place_->name(), file.name, now);
}

Status UrlSource::Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
                       const FetchLimits& limits) {
  if (out.size() > file.bytes || offset > file.bytes - out.size()) {
    return InvalidArgument("{}: {} has {} bytes; bytes {} to {} were asked for", place_->name(),
                           file.name, file.bytes, offset, offset + out.size());
  }
  if (out.empty()) return absl::OkStatus();
  HttpRequest request = place_->RequestOf(file.name);
  request.into = out;
  request.offset = offset;
  request.total = file.bytes;
  const std::string known = KnownVersion(file);
  if (std::string condition = ConditionOf(known); !condition.empty()) {
    request.headers.push_back(std::move(condition));
  }
  RING_ASSIGN_OR_RETURN(const HttpResponse response, client_.Do(request, limits));
  if (response.status != 206) return place_->ErrorOf(response, file.name);
  return CheckVersion(file, known, response);
}

S3Options S3OptionsOf(const UrlOptions& options) {
  return {options.s3_endpoint, options.s3_region};
}

}  // namespace

Status CheckUrlOptions(const UrlOptions& options) {
  RING_RETURN_IF_ERROR(CheckS3Options(S3OptionsOf(options)));
  if (options.s3_endpoint.starts_with("http:") && !options.allow_http) {
    return InvalidArgument("--s3-endpoint {}: http needs --data-http", options.s3_endpoint);
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<PieceSource>> MakeUrlSource(const std::string& url,
                                                     const UrlOptions& options) {
  RING_ASSIGN_OR_RETURN(const data::DataUrl parsed, data::ParseDataUrl(url));
  RING_RETURN_IF_ERROR(CheckUrlOptions(options));
  if (parsed.scheme == data::DataUrl::Scheme::kHttp && !options.allow_http) {
    return InvalidArgument("{}: this worker fetches http only with --data-http; use https", url);
  }
  HttpOptions http = options.http;
  http.allow_http = options.allow_http;
  http.allow_private = options.allow_private;
  std::unique_ptr<UrlPlace> place;
  if (parsed.scheme == data::DataUrl::Scheme::kS3) {
    RING_ASSIGN_OR_RETURN(place, MakeS3Place(parsed, S3OptionsOf(options), options.environment));
  } else {
    place = MakeHttpPlace(parsed);
  }
  return std::make_unique<UrlSource>(std::move(place), http);
}

}  // namespace ringmaster::worker
