#include "worker/fetch/s3_place.h"

#include <algorithm>
#include <utility>

#include "common/text.h"
#include "worker/fetch/s3_listing.h"

namespace ringmaster::worker {
namespace {

using data::DataUrl;

constexpr size_t kMaxPages = 100'000;
constexpr size_t kMaxEtag = 256;

bool IsRegion(const std::string& region) {
  return !region.empty() && region.size() <= 64 &&
         std::all_of(region.begin(), region.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

// Without a `/` at its end.
StatusOr<std::string> EndpointOf(const std::string& text) {
  const auto url = data::IsDataUrl(text) ? data::ParseDataUrl(text)
                                         : InvalidArgument("expected https://HOST or HOST:PORT");
  if (!url.ok()) return Annotate(url.status(), "--s3-endpoint");
  if (url->scheme == DataUrl::Scheme::kS3 || url->path != "/") {
    return InvalidArgument("--s3-endpoint {}: expected https://HOST or https://HOST:PORT alone",
                           text);
  }
  return (url->scheme == DataUrl::Scheme::kHttps ? "https://" : "http://") + url->host;
}

// A bucket at Amazon's has a host of its own, but for names with dots, which no certificate fits.
std::string AmazonsUrl(const std::string& bucket, const std::string& region) {
  const std::string host =
      fmt::format("s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
  const bool plain = bucket.find_first_of("._") == std::string::npos;
  return plain ? fmt::format("https://{}.{}/", bucket, host)
               : fmt::format("https://{}/{}/", host, bucket);
}

// What a bucket is asked for, in requests that libcurl 7.88 signs as S3 checks them: it takes path
// and query as they are, so that they must be encoded already, everything but unreserved characters
// and `/` of keys, and the parameters sorted; and it sends no x-amz-content-sha256 of its own, but
// signs one that it is given.
class S3Place final : public UrlPlace {
 public:
  S3Place(const DataUrl& url, std::string base, std::string region, S3Access access)
      : url_(url),
        name_(fmt::format("s3://{}/{}", url.host, url.path)),
        base_(std::move(base)),
        region_(std::move(region)),
        access_(std::move(access)) {}

  const std::string& name() const override { return name_; }
  const DataUrl& url() const override { return url_; }

  HttpRequest RequestOf(const std::string& file) const override {
    return Signed(base_ + data::PercentEncoded(KeyOf(file), "/"));
  }

  // Who may not list a bucket is told 403 of keys that there are none of.
  bool IsAbsent(const HttpResponse& response) const override {
    return response.status == 404 || (response.status == 403 && url_.folder());
  }

  Status ErrorOf(const HttpResponse& response, const std::string& file) const override;
  StatusOr<std::vector<SourceFile>> ListFolder(HttpClient* client,
                                               const FetchLimits& limits) const override;

 private:
  std::string KeyOf(const std::string& file) const {
    return url_.folder() ? url_.path + file : url_.path;
  }
  HttpRequest Signed(std::string url) const;
  std::string PageUrl(const std::string& token) const;
  // Adds a page's objects; those that stand for folders are none.
  Status TakePage(S3Page page, std::vector<SourceFile>* files) const;

  const DataUrl url_;
  const std::string name_;
  const std::string base_;  // of the bucket, with `/` at its end
  const std::string region_;
  const S3Access access_;
};

HttpRequest S3Place::Signed(std::string url) const {
  HttpRequest request;
  request.url = std::move(url);
  if (!access_.keys) return request;
  request.sign =
      SigningKeys{access_.keys->key_id, access_.keys->secret, access_.keys->token, region_};
  request.headers.push_back("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  if (!access_.keys->token.empty()) {
    request.headers.push_back("x-amz-security-token: " + access_.keys->token);
  }
  return request;
}

std::string S3Place::PageUrl(const std::string& token) const {
  const std::string from =
      token.empty() ? "" : "continuation-token=" + data::PercentEncoded(token, "") + "&";
  return fmt::format("{}?{}list-type=2&max-keys=1000&prefix={}", base_, from,
                     data::PercentEncoded(url_.path, ""));
}

Status S3Place::ErrorOf(const HttpResponse& response, const std::string& file) const {
  const std::string what = fmt::format("s3://{}/{}", url_.host, KeyOf(file));
  const std::string code = S3ErrorCode(response.body);
  const std::string said = fmt::format("{}{}{}", response.status, code.empty() ? "" : " ", code);
  const std::string& region = response.bucket_region;
  if (!region.empty() && region != region_) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "{}: {}: the bucket is in region {}, this worker asks in {}; start it with "
                 "--s3-region {}",
                 what, said, region, region_, region);
  }
  if (response.status == 400 || response.status == 401 || response.status == 403) {
    return Error(absl::StatusCode::kPermissionDenied, "{}: {}; the request was {}", what, said,
                 access_.words);
  }
  if (response.status == 404 && code == "NoSuchBucket") {
    return Error(absl::StatusCode::kNotFound, "{}: there is no bucket {}", what, url_.host);
  }
  if (response.status == 404 && !url_.folder()) {
    return Error(absl::StatusCode::kNotFound,
                 "{}: there is no such object; a prefix ends in `/`: s3://{}/{}/", what, url_.host,
                 url_.path);
  }
  if (IsRedirect(response.status)) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "{}: {}: the store redirects to {}, which is not followed; is --s3-region ({}) "
                 "that of the bucket?",
                 what, said, OneLine(response.location, kMaxNameText), region_);
  }
  return worker::ErrorOf(response, what);
}

Status S3Place::TakePage(S3Page page, std::vector<SourceFile>* files) const {
  for (S3Object& object : page.objects) {
    if (!object.key.starts_with(url_.path)) {
      return Error(absl::StatusCode::kUnknown,
                   "{}: the store lists \"{}\", which is not beneath it", name_,
                   OneLine(object.key, kMaxNameText));
    }
    std::string file = object.key.substr(url_.path.size());
    const bool folder = file.empty() || file.ends_with('/');
    if (folder && object.bytes == 0) continue;
    // It goes into a header line.
    const bool etag =
        object.etag.size() <= kMaxEtag && std::all_of(object.etag.begin(), object.etag.end(),
                                                      [](char c) { return c > ' ' && c < 0x7f; });
    files->push_back({.name = std::move(file),
                      .bytes = object.bytes,
                      .pieces = {},
                      .version = etag ? std::move(object.etag) : std::string()});
    if (files->size() > data::kMaxDatasetFiles) {
      return Error(absl::StatusCode::kResourceExhausted, "{}: there are more than {} objects",
                   name_, data::kMaxDatasetFiles);
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<SourceFile>> S3Place::ListFolder(HttpClient* client,
                                                      const FetchLimits& limits) const {
  std::vector<SourceFile> files;
  std::string token;
  for (size_t pages = 0; pages < kMaxPages; ++pages) {
    HttpRequest request = Signed(PageUrl(token));
    request.max_body = kMaxListingBytes;
    RING_ASSIGN_OR_RETURN(const HttpResponse response, client->Do(request, limits));
    if (response.status != 200) return ErrorOf(response, "");
    auto page = ParseS3Page(response.body);
    if (!page.ok()) {
      return Error(absl::StatusCode::kUnknown, "{}: the list of objects cannot be read: {}", name_,
                   Message(page.status()));
    }
    const std::string next = page->next;
    if (!next.empty() && next == token) {
      return Error(absl::StatusCode::kUnknown, "{}: the store sends the same page again and again",
                   name_);
    }
    RING_RETURN_IF_ERROR(TakePage(*std::move(page), &files));
    if (next.empty()) return files;
    token = next;
  }
  return Error(absl::StatusCode::kResourceExhausted, "{}: its list has more than {} pages", name_,
               kMaxPages);
}

}  // namespace

Status CheckS3Options(const S3Options& options) {
  if (!options.region.empty() && !IsRegion(options.region)) {
    return InvalidArgument("--s3-region \"{}\": expected a name as eu-central-1",
                           OneLine(options.region, kMaxNameText));
  }
  return options.endpoint.empty() ? absl::OkStatus() : EndpointOf(options.endpoint).status();
}

StatusOr<std::unique_ptr<UrlPlace>> MakeS3Place(const DataUrl& url, const S3Options& options,
                                                const Environment& environment) {
  RING_RETURN_IF_ERROR(CheckS3Options(options));
  std::string region = options.region;
  for (const char* const variable : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    if (region.empty()) region = environment(variable);
  }
  if (region.empty()) region = "us-east-1";
  if (!IsRegion(region)) {
    return InvalidArgument("AWS_REGION \"{}\": expected a name as eu-central-1",
                           OneLine(region, kMaxNameText));
  }
  RING_ASSIGN_OR_RETURN(S3Access access, FindS3Access(environment));
  std::string base = AmazonsUrl(url.host, region);
  if (!options.endpoint.empty()) {
    RING_ASSIGN_OR_RETURN(const std::string endpoint, EndpointOf(options.endpoint));
    base = fmt::format("{}/{}/", endpoint, url.host);
  }
  return std::make_unique<S3Place>(url, std::move(base), std::move(region), std::move(access));
}

}  // namespace ringmaster::worker
