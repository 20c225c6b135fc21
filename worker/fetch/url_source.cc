#include "worker/fetch/url_source.h"

namespace ringmaster::worker {

bool IsUrl(const std::string& path) { return path.find("://") != std::string::npos; }

StatusOr<std::unique_ptr<PieceSource>> MakeUrlSource(const std::string& url,
                                                     const UrlOptions& /*options*/) {
  return Error(absl::StatusCode::kUnimplemented, "{}: addresses are not fetched yet", url);
}

}  // namespace ringmaster::worker
