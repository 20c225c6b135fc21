// What of a dataset under an address depends on who serves it: a web server here, an object store
// in s3_place.h. They say what to ask and what answers mean; url_source.cc asks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/data/data_url.h"
#include "common/status.h"
#include "worker/fetch/http_client.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

// Immutable; thread-safe.
class UrlPlace {
 public:
  virtual ~UrlPlace() = default;
  // The address, for messages; what it holds is no secret.
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Of the dataset: one file, or a folder.
  [[nodiscard]] virtual const data::DataUrl& url() const = 0;
  // Asks for all of a file by its name in the dataset; of one file the name is its own.
  [[nodiscard]] virtual HttpRequest RequestOf(const std::string& file) const = 0;
  // Whether this answer to a request for a file says that there is none.
  [[nodiscard]] virtual bool IsAbsent(const HttpResponse& response) const = 0;
  // What an answer that is no good one means; `file` may be empty: the whole of it.
  [[nodiscard]] virtual Status ErrorOf(const HttpResponse& response,
                                       const std::string& file) const = 0;
  // The files of a folder without a manifest. Not sorted, names not checked.
  [[nodiscard]] virtual StatusOr<std::vector<SourceFile>> ListFolder(
      HttpClient* client, const FetchLimits& limits) const = 0;
};

// `url` of http or https.
[[nodiscard]] std::unique_ptr<UrlPlace> MakeHttpPlace(const data::DataUrl& url);

}  // namespace ringmaster::worker
