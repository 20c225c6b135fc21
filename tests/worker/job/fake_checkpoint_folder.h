// The coordinator's end of UploadCheckpoint: takes every checkpoint, but for those that it refuses
// first, and remembers the SHA-256 of its manifest. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>

#include "common/mutex.h"
#include "common/sha256.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "tests/support/served.h"

namespace ringmaster::worker {

class FakeCheckpointFolder : public v1::Fleet::Service {
 public:
  [[nodiscard]] const std::shared_ptr<grpc::Channel>& channel() const { return served_.channel(); }
  // The next uploads end with UNAVAILABLE, so many of them.
  void RefuseNext(int uploads) {
    MutexLock lock(mu_);
    refusals_ = uploads;
  }
  // By step, hex; "" when there is none.
  [[nodiscard]] std::string Manifest(uint64_t step) {
    MutexLock lock(mu_);
    return manifests_.count(step) > 0 ? manifests_[step] : "";
  }

 private:
  grpc::Status UploadCheckpoint(grpc::ServerContext*,
                                grpc::ServerReader<v1::CheckpointUpload>* reader,
                                v1::CheckpointReceipt* receipt) override {
    v1::CheckpointUpload upload;
    uint64_t step = 0;
    std::string manifest;
    while (reader->Read(&upload)) {
      if (upload.has_begin()) step = upload.begin().step();
      if (upload.piece().name() == "manifest.json") manifest += upload.piece().data();
    }
    receipt->set_manifest_sha256(Hex(Sha256Of(manifest)));
    MutexLock lock(mu_);
    if (refusals_ > 0) {
      --refusals_;
      return {grpc::StatusCode::UNAVAILABLE, "the disk is full"};
    }
    manifests_[step] = receipt->manifest_sha256();
    return grpc::Status::OK;
  }

  Mutex mu_;
  int refusals_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::string> manifests_ ABSL_GUARDED_BY(mu_);
  testing::Served served_{this};  // last: its calls use everything above
};

}  // namespace ringmaster::worker
