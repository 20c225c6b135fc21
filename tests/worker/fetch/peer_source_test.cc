// Both ends of DataFiles over loopback: what a source gives, and to whom.
#include "worker/fetch/peer_source.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <future>

#include "common/check.h"
#include "common/data_files/data_files_service.h"
#include "common/ids.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/fetch/fake_data.h"

namespace ringmaster::worker {
namespace {

using data_files::DataFilesService;
using data_files::Place;

const std::string kDataTicket(16, 't');

// A folder `root/data` that is served on a port of its own to who shows the ticket.
class Served {
 public:
  explicit Served(DataFilesService::Options options = {})
      : service_(Admitting(std::move(options))) {
    std::filesystem::create_directories(folder / "root/data/sub");
    Listen(0);
  }
  ~Served() { Stop(); }

  void Listen(int port) {
    service_.Start();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fmt::format("127.0.0.1:{}", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the source listens");
  }
  void Stop() {
    service_.Stop();
    server_->Shutdown();  // without a deadline: nothing may be left that it waits for
  }
  [[nodiscard]] PeerOptions Options(const std::string& path = "data") const {
    PeerOptions options;
    options.called = "worker a";
    options.address = {"127.0.0.1", static_cast<uint16_t>(port_)};
    options.asker.set_worker("b");
    options.asker.set_job_id("j1");
    options.asker.set_path(path);
    options.ticket = []() { return kDataTicket; };
    return options;
  }
  [[nodiscard]] std::unique_ptr<v1::DataFiles::Stub> Stub() const {
    return v1::DataFiles::NewStub(grpc::CreateChannel(fmt::format("127.0.0.1:{}", port_),
                                                      grpc::InsecureChannelCredentials()));
  }

  TemporaryFolder folder;
  std::atomic<int> admitted = 0;

 private:
  DataFilesService::Options Admitting(DataFilesService::Options options) {
    if (!options.admit) {
      options.admit = [this](const grpc::AuthContext&,
                             const v1::DataAsker& asker) -> StatusOr<Place> {
        ++admitted;
        if (asker.ticket() == kDataTicket) return Place{folder / "root", asker.path()};
        return absl::PermissionDeniedError("not its ticket");
      };
    }
    return options;
  }

  DataFilesService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

FetchLimits Soon(std::stop_token stop = {}) {
  return {std::chrono::steady_clock::now() + std::chrono::seconds(30), std::move(stop)};
}

Status ReadOf(PeerSource* source, const std::string& name, uint64_t file_bytes, uint64_t offset,
              size_t bytes, std::string* read = nullptr) {
  std::string out(bytes, '\0');
  const Status status = source->Read({name, file_bytes, {}, ""}, offset,
                                     {reinterpret_cast<uint8_t*>(out.data()), out.size()}, Soon());
  if (read != nullptr) *read = out;
  return status;
}

TEST_CASE("PeerSource: a folder comes as it is") {
  Served served;
  const std::string large = Content(kPieceBytes + 12'345, 'l');
  WriteWhole(served.folder / "root/data/large", large);
  WriteWhole(served.folder / "root/data/sub/small", "small");
  WriteWhole(served.folder / "root/data/empty", "");
  PeerSource source(served.Options());
  const auto files = source.List(Soon());
  REQUIRE(files.ok());
  REQUIRE(files->size() == 3);
  CHECK((*files)[0].name == "empty");
  CHECK((*files)[1].pieces == PiecesOf(large));
  CHECK((*files)[2].name == "sub/small");
  std::string read;
  CHECK(ReadOf(&source, "large", large.size(), 0, kPieceBytes, &read).ok());
  CHECK(read == large.substr(0, kPieceBytes));
  CHECK(ReadOf(&source, "large", large.size(), kPieceBytes, 12'345, &read).ok());
  CHECK(read == large.substr(kPieceBytes));
}

TEST_CASE("PeerSource: a list of very many files and of very many pieces comes in order") {
  Served served;
  for (int i = 0; i < 6'000; ++i) {
    WriteWhole(served.folder / fmt::format("root/data/sub/a-name-that-is-not-short-{:05}", i),
               std::to_string(i));
  }
  PeerSource source(served.Options());
  const auto files = source.List(Soon());
  REQUIRE(files.ok());
  REQUIRE(files->size() == 6'000);
  CHECK((*files)[5'999].pieces == std::vector{Sha256Of("5999")});
}

TEST_CASE("DataFiles: nothing outside of the folder is read") {
  Served served;
  WriteWhole(served.folder / "secret", "secret");
  WriteWhole(served.folder / "root/beside", "beside");
  WriteWhole(served.folder / "root/data/.hidden", "hidden");
  std::filesystem::create_symlink("../../secret", served.folder / "root/data/out");
  std::filesystem::create_symlink("../..", served.folder / "root/data/above");
  PeerSource source(served.Options());
  for (const std::string& name :
       {std::string("../beside"), std::string("../../secret"), std::string("sub/../../beside"),
        served.folder / "secret", std::string("out"), std::string("above/secret"),
        std::string(".hidden"), std::string("sub"), std::string("")}) {
    INFO(name);
    std::string read;
    CHECK(ReadOf(&source, name, 6, 0, 6, &read).code() == absl::StatusCode::kInvalidArgument);
    CHECK(read == std::string(6, '\0'));
  }
  CHECK(ReadOf(&source, "none", 6, 0, 6).code() == absl::StatusCode::kNotFound);
  for (const char* path : {"..", "../..", "/etc", "data/../.."}) {
    INFO(path);
    PeerSource other(served.Options(path));
    CHECK(other.List(Soon()).status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(ReadOf(&other, "secret", 6, 0, 6).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("DataFiles: a read is of the file that was listed, and within it") {
  Served served;
  WriteWhole(served.folder / "root/data/file", "0123456789");
  PeerSource source(served.Options());
  std::string read;
  CHECK(ReadOf(&source, "file", 10, 4, 3, &read).ok());
  CHECK(read == "456");
  CHECK(ReadOf(&source, "file", 11, 0, 3).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(ReadOf(&source, "file", 10, 8, 3).code() == absl::StatusCode::kInvalidArgument);
  CHECK(ReadOf(&source, "file", 10, ~uint64_t{0}, 3).code() == absl::StatusCode::kInvalidArgument);
  std::filesystem::resize_file(served.folder / "root/data/file", kPieceBytes + 2);
  CHECK(ReadOf(&source, "file", kPieceBytes + 2, 0, kPieceBytes + 1).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("DataFiles: who has no ticket gets nothing, and who will have one asks again") {
  Served served;
  WriteWhole(served.folder / "root/data/file", "x");
  PeerOptions options = served.Options();
  options.ticket = []() { return std::string(16, 'x'); };
  PeerSource stranger(options);
  CHECK(stranger.List(Soon()).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(ReadOf(&stranger, "file", 1, 0, 1).code() == absl::StatusCode::kPermissionDenied);
  options.ticket_changes = true;
  PeerSource early(options);
  CHECK(early.List(Soon()).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("DataFiles: another protocol version is refused by name") {
  Served served;
  const auto stub = served.Stub();
  grpc::ClientContext context;
  v1::ListFilesRequest request;
  request.mutable_asker()->set_protocol(kProtocolVersion + 1);
  request.mutable_asker()->set_worker("newer");
  request.mutable_asker()->set_ticket(kDataTicket);
  const auto stream = stub->List(&context, request);
  v1::ListedFiles message;
  CHECK_FALSE(stream->Read(&message));
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == grpc::FAILED_PRECONDITION);
  CHECK_THAT(status.error_message(), Catch::Contains("newer"));
  CHECK(served.admitted == 0);
}

// A Read whose reader takes nothing.
struct IdleReader {
  explicit IdleReader(const Served& served) : stub(served.Stub()) {
    v1::ReadPieceRequest request;
    request.mutable_asker()->set_protocol(kProtocolVersion);
    request.mutable_asker()->set_path("data");
    request.mutable_asker()->set_ticket(kDataTicket);
    request.set_name("large");
    request.set_file_bytes(kPieceBytes);
    request.set_bytes(kPieceBytes);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stream = stub->Read(&context, request);
  }
  // Its first frame came: it is being served.
  [[nodiscard]] bool Begun() { return stream->Read(&frame); }

  std::unique_ptr<v1::DataFiles::Stub> stub;
  grpc::ClientContext context;
  v1::PieceFrame frame;
  std::unique_ptr<grpc::ClientReader<v1::PieceFrame>> stream;
};

TEST_CASE("DataFiles: so many reads at a time and no more; who is told so asks again") {
  DataFilesService::Options options;
  options.max_reads = 2;
  Served served(options);
  WriteWhole(served.folder / "root/data/large", Content(kPieceBytes, 'l'));
  IdleReader one(served), two(served);
  REQUIRE(one.Begun());
  REQUIRE(two.Begun());
  PeerSource third(served.Options());
  const Status status = ReadOf(&third, "large", kPieceBytes, 0, 10);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status), Catch::Contains("2 workers fetch data here already"));
  one.context.TryCancel();
  Status later;
  for (const auto limit = Soon().deadline; std::chrono::steady_clock::now() < limit;) {
    later = ReadOf(&third, "large", kPieceBytes, 0, 10);
    if (later.ok()) break;
  }
  CHECK(later.ok());
}

TEST_CASE("DataFiles: who takes nothing is given up, and gives its place to others") {
  DataFilesService::Options options;
  options.max_reads = 1;
  options.write_limit = std::chrono::milliseconds(50);
  Served served(options);
  WriteWhole(served.folder / "root/data/large", Content(kPieceBytes, 'l'));
  IdleReader idle(served);
  REQUIRE(idle.Begun());
  PeerSource other(served.Options());
  Status status = absl::UnavailableError("");
  for (const auto limit = Soon().deadline; std::chrono::steady_clock::now() < limit;) {
    status = ReadOf(&other, "large", kPieceBytes, 0, 10);
    if (status.ok()) break;
  }
  CHECK(status.ok());
}

TEST_CASE("PeerSource: a source that is not there, stops or stands still is asked again") {
  PeerOptions options;
  {
    Served served;
    options = served.Options();
  }
  PeerSource gone(options);
  CHECK(gone.List(Soon()).status().code() == absl::StatusCode::kUnavailable);
  DataFilesService::Options late;
  std::promise<void> answer;
  late.admit = [&, wait = answer.get_future().share()](const grpc::AuthContext&,
                                                       const v1::DataAsker&) -> StatusOr<Place> {
    wait.wait();
    return absl::UnavailableError("it still looks at its own");
  };
  Served still(late);
  options = still.Options();
  options.silence = std::chrono::milliseconds(20);
  PeerSource source(options);
  const Status status = source.List(Soon()).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status), Catch::Contains("silent"));
  std::stop_source stop;
  stop.request_stop();
  CHECK(source.List(Soon(stop.get_token())).status().code() == absl::StatusCode::kCancelled);
  answer.set_value();
}

}  // namespace
}  // namespace ringmaster::worker
