#include "worker/fetch/http_client.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "common/signals.h"
#include "common/text.h"
#include "worker/fetch/http_rules.h"

namespace ringmaster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxHeaders = 64 << 10;    // bytes of one answer
constexpr size_t kMaxErrorBody = 64 << 10;  // read of it at all
constexpr int kMaxRedirects = 5;
constexpr std::chrono::seconds kMaxRetryAfter{10};
constexpr milliseconds kSlice{1000};  // libcurl wants to be called so often

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

template <typename T>
bool ReadCount(const std::string& text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status TransferEnded(const FetchLimits& limits, const std::string& url) {
  if (limits.stop.stop_requested()) {
    return Error(absl::StatusCode::kCancelled, "{}: fetching was stopped", url);
  }
  return Error(absl::StatusCode::kDeadlineExceeded, "{}: the time for fetching it is over", url);
}

bool LimitsAreOver(const FetchLimits& limits) {
  return limits.stop.stop_requested() || steady_clock::now() >= limits.deadline;
}

// One request on its way: what libcurl's callbacks are told and decide.
struct Transfer {
  const HttpRequest& request;
  const HttpOptions& options;
  HttpResponse response;
  Status verdict;               // why a callback ended it
  bool enough = false;          // of an error's body
  std::string refused_address;  // that it may not connect to
  size_t header_bytes = 0;
  size_t received = 0;  // of the range

  // False: `verdict` says why.
  bool TakeHeader(const std::string& line);
  bool TakeBody(const char* data, size_t bytes);
  Status CheckRange() const;
};

// 206 with these bytes and no others.
Status Transfer::CheckRange() const {
  if (response.status == 200) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the server answered 200 to a range, so it knows no ranges; serve the data "
                 "with one that does (nginx, an object store)",
                 request.url);
  }
  const uint64_t last = request.offset + request.into.size() - 1;
  const std::string expected = fmt::format("bytes {}-{}/{}", request.offset, last, request.total);
  if (response.content_range == expected) return absl::OkStatus();
  const std::string total = response.content_range.substr(response.content_range.rfind('/') + 1);
  uint64_t bytes = 0;
  if (ReadCount(total, &bytes) && bytes != request.total) {
    return FailedPrecondition("{}: it had {} bytes when it was listed, and has {} by now",
                              request.url, request.total, bytes);
  }
  return Error(absl::StatusCode::kUnknown,
               "{}: the server answered with Content-Range \"{}\", expected \"{}\"", request.url,
               OneLine(response.content_range, kMaxNameText), expected);
}

bool Transfer::TakeHeader(const std::string& line) {
  header_bytes += line.size();
  if (header_bytes > kMaxHeaders) {
    verdict = Error(absl::StatusCode::kUnknown, "{}: the server sends more than {} bytes of header",
                    request.url, kMaxHeaders);
    return false;
  }
  if (line.starts_with("HTTP/")) {  // another answer begins, after an informational one
    response = {};
    const size_t space = std::min(line.find(' '), line.size() - 1);
    if (!ReadCount(line.substr(space + 1, 3), &response.status)) response.status = 0;
    return true;
  }
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return true;
  std::string name = line.substr(0, colon);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string value = Trimmed(line.substr(colon + 1));
  if (name == "etag") response.etag = value;
  if (name == "last-modified") response.last_modified = value;
  if (name == "content-range") response.content_range = value;
  if (name == "content-encoding") response.content_encoding = value;
  if (name == "location") response.location = value;
  if (name == "x-amz-bucket-region") response.bucket_region = OneLine(value, kMaxNameText);
  if (name == "content-length") {
    uint64_t length = 0;
    if (ReadCount(value, &length)) response.length = length;
  }
  if (name == "retry-after") {
    uint32_t seconds = 0;
    if (ReadCount(value, &seconds)) response.retry_after = std::chrono::seconds(seconds);
  }
  return true;
}

bool Transfer::TakeBody(const char* data, size_t bytes) {
  if (response.status != 200 && response.status != 206) {
    response.body.append(data, std::min(bytes, kMaxErrorBody - response.body.size()));
    enough = response.body.size() == kMaxErrorBody;
    return !enough;
  }
  if (request.into.empty()) {
    if (bytes > request.max_body - response.body.size()) {
      verdict = Error(absl::StatusCode::kResourceExhausted, "{}: it is more than {} bytes",
                      request.url, request.max_body);
      return false;
    }
    response.body.append(data, bytes);
    return true;
  }
  if (received == 0) verdict = CheckRange();
  if (verdict.ok() && bytes > request.into.size() - received) {
    verdict = Error(absl::StatusCode::kUnknown, "{}: the server sends more than the {} bytes asked",
                    request.url, request.into.size());
  }
  if (!verdict.ok()) return false;
  std::memcpy(request.into.data() + received, data, bytes);
  received += bytes;
  return true;
}

bool IsBusy(uint32_t status) { return status == 408 || status == 429 || status >= 500; }

std::string HostOf(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

// The pause before try `attempt` + 1.
milliseconds PauseAfter(uint32_t attempt, const HttpOptions& options,
                        std::chrono::seconds retry_after) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double factor = std::uniform_real_distribution<double>(0.5, 1.5)(random);
  const auto pause = milliseconds(static_cast<int64_t>(
      factor * static_cast<double>(options.first_pause.count() << std::min(attempt, 10U))));
  return std::max<milliseconds>(pause, std::min(retry_after, kMaxRetryAfter));
}

}  // namespace

// An easy handle in a multi handle of its own, which keeps its connection, and which a stop wakes.
class HttpClient::Connection {
 public:
  Connection() : multi_(curl_multi_init()), easy_(curl_easy_init()) {}
  ~Connection() {
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The answer, whatever its status; UNAVAILABLE: it may be tried again.
  [[nodiscard]] StatusOr<HttpResponse> Perform(const HttpRequest& request,
                                               const HttpOptions& options,
                                               const FetchLimits& limits);

 private:
  void SetUp(Transfer* transfer);
  [[nodiscard]] Status Wait(const FetchLimits& limits, const std::string& url, CURLcode* result);
  [[nodiscard]] Status WordsOf(CURLcode result, const Transfer& transfer) const;

  CURLM* const multi_;
  CURL* const easy_;
  std::array<char, CURL_ERROR_SIZE> words_{};
};

namespace {

size_t OnHeader(char* data, size_t size, size_t count, void* transfer) {
  auto* const self = static_cast<Transfer*>(transfer);
  return self->TakeHeader(std::string(data, size * count)) ? size * count : 0;
}

size_t OnBody(char* data, size_t size, size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->TakeBody(data, size * count) ? size * count : 0;
}

// Between ringmasters there is TLS 1.3 alone (UseTls13, common/rpc/credentials.h), which holds for
// the whole process; servers of datasets may be older.
CURLcode OnTls(CURL* /*easy*/, void* context, void* /*data*/) {
  SSL_CTX_clear_options(static_cast<SSL_CTX*>(context), SSL_OP_NO_TLSv1_2);
  return CURLE_OK;
}

// Sees the address that is connected to, whatever the DNS said before.
curl_socket_t OnSocket(void* data, curlsocktype /*purpose*/, curl_sockaddr* address) {
  auto* const transfer = static_cast<Transfer*>(data);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&address->addr);
  const size_t begin = address->family == AF_INET ? offsetof(sockaddr_in, sin_addr)
                                                  : offsetof(sockaddr_in6, sin6_addr);
  const size_t size = address->family == AF_INET ? 4 : 16;
  const bool internet = address->family == AF_INET || address->family == AF_INET6;
  if (!internet || (!transfer->options.allow_private && IsPrivateAddress({bytes + begin, size}))) {
    transfer->refused_address = "a loopback, link-local or unspecified address";
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

}  // namespace

void HttpClient::Connection::SetUp(Transfer* transfer) {
  const HttpRequest& request = transfer->request;
  const HttpOptions& options = transfer->options;
  const char* const schemes = options.allow_http ? "https,http" : "https";
  curl_easy_reset(easy_);  // keeps connections, forgets keys
  words_[0] = '\0';
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, words_.data());
  curl_easy_setopt(easy_, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, schemes);
  curl_easy_setopt(easy_, CURLOPT_REDIR_PROTOCOLS_STR, schemes);
  curl_easy_setopt(easy_, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy_, CURLOPT_PROXY, "");
  curl_easy_setopt(easy_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_PATH_AS_IS, 1L);  // signatures are of the path as it is
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy_, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  curl_easy_setopt(easy_, CURLOPT_SSL_CTX_FUNCTION, &OnTls);
  curl_easy_setopt(easy_, CURLOPT_USERAGENT, "ringmaster");
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout.count()));
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.slow_bytes));
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.slow_time.count()));
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, transfer);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(easy_, CURLOPT_OPENSOCKETFUNCTION, &OnSocket);
  curl_easy_setopt(easy_, CURLOPT_OPENSOCKETDATA, transfer);
  // As OpenSSL's own programs: certificates of an authority of one's own.
  if (const char* const file = std::getenv("SSL_CERT_FILE"); file != nullptr) {
    curl_easy_setopt(easy_, CURLOPT_CAINFO, file);
  }
  if (request.method == HttpRequest::Method::kHead) curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  if (request.method == HttpRequest::Method::kPut) {
    curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, "PUT");
  }
  if (!request.into.empty()) {
    const std::string range =
        fmt::format("{}-{}", request.offset, request.offset + request.into.size() - 1);
    curl_easy_setopt(easy_, CURLOPT_RANGE, range.c_str());  // is copied, as every text
  }
  if (request.sign) {
    const std::string provider = fmt::format("aws:amz:{}:s3", request.sign->region);
    curl_easy_setopt(easy_, CURLOPT_AWS_SIGV4, provider.c_str());
    curl_easy_setopt(easy_, CURLOPT_USERNAME, request.sign->key_id.c_str());
    curl_easy_setopt(easy_, CURLOPT_PASSWORD, request.sign->secret.c_str());
  }
}

Status HttpClient::Connection::Wait(const FetchLimits& limits, const std::string& url,
                                    CURLcode* result) {
  const std::stop_callback wake(limits.stop, [this] { curl_multi_wakeup(multi_); });
  for (int running = 1; running > 0;) {
    if (LimitsAreOver(limits)) return TransferEnded(limits, url);
    if (curl_multi_perform(multi_, &running) != CURLM_OK) {
      return Error(absl::StatusCode::kUnavailable, "{}: libcurl cannot go on", url);
    }
    if (running == 0) break;
    const auto left = std::chrono::ceil<milliseconds>(limits.deadline - steady_clock::now());
    const auto slice = std::clamp(left, milliseconds(0), kSlice);
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(slice.count()), nullptr);
  }
  int others = 0;
  const CURLMsg* const message = curl_multi_info_read(multi_, &others);
  *result = message == nullptr ? CURLE_RECV_ERROR : message->data.result;
  return absl::OkStatus();
}

Status HttpClient::Connection::WordsOf(CURLcode result, const Transfer& transfer) const {
  const std::string& url = transfer.request.url;
  // How many milliseconds it took tells nothing, and would look as if something had changed.
  const bool slow = std::string_view(words_.data()).starts_with("Operation too slow");
  const bool counts =
      result == CURLE_COULDNT_CONNECT || (result == CURLE_OPERATION_TIMEDOUT && !slow);
  const std::string said = OneLine(
      words_[0] != '\0' && !counts ? words_.data() : curl_easy_strerror(result), kMaxNameText);
  switch (result) {
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9, which is whatever comes
    case CURLE_WEIRD_SERVER_REPLY:
      return Error(absl::StatusCode::kUnknown, "{}: {} does not speak HTTP: {}", url, HostOf(url),
                   said);
    case CURLE_COULDNT_RESOLVE_HOST:
      return Error(absl::StatusCode::kUnavailable, "{}: the name {} is not known here (DNS): {}",
                   url, HostOf(url), said);
    case CURLE_COULDNT_CONNECT:
      if (transfer.refused_address.empty()) break;
      return Error(absl::StatusCode::kPermissionDenied,
                   "{}: {} is {}, from which only a worker with --data-private-addresses fetches",
                   url, HostOf(url), transfer.refused_address);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
      return Error(absl::StatusCode::kUnauthenticated,
                   "{}: TLS: the certificate of {} is not trusted: {}; is ca-certificates "
                   "installed here? SSL_CERT_FILE names authorities of one's own",
                   url, HostOf(url), said);
    case CURLE_OPERATION_TIMEDOUT:
      if (!slow) break;
      return Error(absl::StatusCode::kUnavailable,
                   "{}: the server is too slow: under {} bytes a second for {} s", url,
                   transfer.options.slow_bytes, transfer.options.slow_time.count());
    default:
      break;
  }
  return Error(absl::StatusCode::kUnavailable, "{}: {}", url, said);
}

StatusOr<HttpResponse> HttpClient::Connection::Perform(const HttpRequest& request,
                                                       const HttpOptions& options,
                                                       const FetchLimits& limits) {
  if (multi_ == nullptr || easy_ == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "{}: no memory for a connection", request.url);
  }
  Transfer transfer{
      .request = request, .options = options, .response = {}, .verdict = {}, .refused_address = {}};
  SetUp(&transfer);
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) {
    headers = curl_slist_append(headers, header.c_str());
  }
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers);
  curl_multi_add_handle(multi_, easy_);
  CURLcode result = CURLE_OK;
  const Status waited = Wait(limits, request.url, &result);
  const Status words =
      result == CURLE_OK || transfer.enough ? absl::OkStatus() : WordsOf(result, transfer);
  curl_multi_remove_handle(multi_, easy_);
  curl_easy_reset(easy_);
  curl_slist_free_all(headers);
  RING_RETURN_IF_ERROR(waited);
  RING_RETURN_IF_ERROR(transfer.verdict);
  RING_RETURN_IF_ERROR(words);
  const uint32_t status = transfer.response.status;
  if (status == 206 && transfer.received < request.into.size()) {
    return Error(absl::StatusCode::kUnavailable, "{}: the connection ended after {} of {} bytes",
                 request.url, transfer.received, request.into.size());
  }
  if (status == 200 && !request.into.empty()) return transfer.CheckRange();
  return std::move(transfer.response);
}

class HttpClient::Lease {
 public:
  Lease(HttpClient* client, std::unique_ptr<Connection> connection)
      : client_(client), connection_(std::move(connection)) {}
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() {
    if (connection_ == nullptr) return;
    const MutexLock lock(client_->mu_);
    --client_->busy_;
    client_->idle_.push_back(std::move(connection_));
    client_->changed_.NotifyAll();
  }
  Connection* operator->() const { return connection_.get(); }

 private:
  HttpClient* const client_;
  std::unique_ptr<Connection> connection_;
};

HttpClient::HttpClient(const HttpOptions& options) : options_(options) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);  // once, by one thread
  static_cast<void>(ready);
}

HttpClient::~HttpClient() = default;

StatusOr<HttpClient::Lease> HttpClient::Acquire(const std::string& url, const FetchLimits& limits) {
  const std::stop_callback wake(limits.stop, [this] {
    const MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  const MutexLock lock(mu_);
  changed_.WaitUntil(mu_, limits.deadline, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return busy_ < options_.connections || limits.stop.stop_requested();
  });
  if (busy_ >= options_.connections || LimitsAreOver(limits)) return TransferEnded(limits, url);
  ++busy_;
  if (idle_.empty()) return Lease(this, std::make_unique<Connection>());
  std::unique_ptr<Connection> connection = std::move(idle_.back());
  idle_.pop_back();
  return Lease(this, std::move(connection));
}

StatusOr<HttpResponse> HttpClient::Try(HttpRequest request, const FetchLimits& limits) {
  RING_ASSIGN_OR_RETURN(const Lease connection, Acquire(request.url, limits));
  for (int redirects = 0;; ++redirects) {
    RING_ASSIGN_OR_RETURN(HttpResponse response, connection->Perform(request, options_, limits));
    if (!IsRedirect(response.status) || !request.follow) return response;
    if (redirects == kMaxRedirects) {
      return Error(absl::StatusCode::kUnknown, "{}: the server redirects more than {} times",
                   request.url, kMaxRedirects);
    }
    RING_ASSIGN_OR_RETURN(request.url,
                          RedirectTarget(request.url, response.location, options_.allow_http));
  }
}

StatusOr<HttpResponse> HttpClient::Do(const HttpRequest& request, const FetchLimits& limits) {
  if (request.url.starts_with("http:") && !options_.allow_http) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "{}: only https is fetched; a worker with --data-http also fetches http",
                 request.url);
  }
  for (uint32_t attempt = 0;; ++attempt) {
    auto response = Try(request, limits);
    const bool busy = response.ok() && IsBusy(response->status);
    if (response.ok() && !busy) return response;
    if (!response.ok() && response.status().code() != absl::StatusCode::kUnavailable) {
      return response;
    }
    const auto retry_after = busy ? response->retry_after : std::chrono::seconds(0);
    const Status status = busy ? Error(absl::StatusCode::kUnavailable, "{}: the server answered {}",
                                       request.url, response->status)
                               : response.status();
    if (attempt + 1 >= options_.attempts) {
      return Error(absl::StatusCode::kUnavailable, "{}; {} tries", Message(status), attempt + 1);
    }
    const milliseconds pause = PauseAfter(attempt, options_, retry_after);
    if (steady_clock::now() + pause >= limits.deadline || WaitForStop(limits.stop, pause)) {
      return Annotate(TransferEnded(limits, request.url), Message(status));
    }
  }
}

}  // namespace ringmaster::worker
