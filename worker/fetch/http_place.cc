#include "worker/fetch/http_place.h"

#include "common/data/manifest.h"

namespace ringmaster::worker {
namespace {

class HttpPlace final : public UrlPlace {
 public:
  explicit HttpPlace(const data::DataUrl& url)
      : url_(url),
        name_((url.scheme == data::DataUrl::Scheme::kHttps ? "https://" : "http://") + url.host +
              url.path) {}

  const std::string& name() const override { return name_; }
  const data::DataUrl& url() const override { return url_; }

  HttpRequest RequestOf(const std::string& file) const override {
    HttpRequest request;
    request.url = UrlOf(file);
    request.follow = true;
    return request;
  }

  bool IsAbsent(const HttpResponse& response) const override {
    return response.status == 404 || response.status == 410;
  }

  Status ErrorOf(const HttpResponse& response, const std::string& file) const override {
    return worker::ErrorOf(response, UrlOf(file));
  }

  // Pages that list folders are for people, and each server has its own.
  StatusOr<std::vector<SourceFile>> ListFolder(HttpClient* /*client*/,
                                               const FetchLimits& /*limits*/) const override {
    return Error(absl::StatusCode::kNotFound,
                 "{}: there is no {} in it, which lists its files; write it with `ringctl dataset "
                 "manifest DIR` before the folder is served, or name one file instead",
                 name_, data::kDataManifestName);
  }

 private:
  std::string UrlOf(const std::string& file) const {
    return url_.folder() ? name_ + data::PercentEncoded(file, "/") : name_;
  }

  const data::DataUrl url_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<UrlPlace> MakeHttpPlace(const data::DataUrl& url) {
  return std::make_unique<HttpPlace>(url);
}

}  // namespace ringmaster::worker
