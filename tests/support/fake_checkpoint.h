// A small checkpoint with a right manifest, and its upload. Thread-compatible.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/sha256.h"
#include "coordinator/store/checkpoint_folder.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::testing {

struct FakeCheckpoint {
  uint64_t step = 0;
  std::vector<std::pair<std::string, std::string>> files;  // name, bytes; manifest.json last

  const std::string& manifest() const { return files.back().second; }
  std::string manifest_sha256() const { return Hex(Sha256Of(manifest())); }
};

inline FakeCheckpoint MakeCheckpoint(uint64_t step, const std::string& result_digest,
                                     const std::string& digest, size_t state_bytes = 3'000'000,
                                     const std::string& class_maps = "[]") {
  FakeCheckpoint checkpoint;
  checkpoint.step = step;
  checkpoint.files.emplace_back("model.safetensors", "weights of step " + std::to_string(step));
  checkpoint.files.emplace_back("state.safetensors", std::string(state_bytes, 's'));
  checkpoint.files.emplace_back("empty.txt", "");
  std::string list;
  for (const auto& [name, bytes] : checkpoint.files) {
    list += fmt::format(R"({}{{"bytes":{},"name":"{}","sha256":"{}"}})", list.empty() ? "" : ",",
                        bytes.size(), name, Hex(Sha256Of(bytes)));
  }
  checkpoint.files.emplace_back(
      "manifest.json",
      fmt::format(
          R"({{"class_maps":{},"digest":"{}","exact":true,"files":[{}],"format":1,"result_digest":"{}","step":{}}})",
          class_maps, digest, list, result_digest, step));
  return checkpoint;
}

// The pieces of all files, as a worker sends them.
inline std::vector<v1::FilePiece> PiecesOf(const FakeCheckpoint& checkpoint) {
  constexpr size_t kPiece = 1 << 20;
  std::vector<v1::FilePiece> pieces;
  for (const auto& [name, bytes] : checkpoint.files) {
    size_t offset = 0;
    do {
      v1::FilePiece& piece = pieces.emplace_back();
      piece.set_name(name);
      piece.set_offset(offset);
      piece.set_data(bytes.substr(offset, kPiece));
      offset += piece.data().size();
      piece.set_last(offset == bytes.size());
    } while (offset < bytes.size());
  }
  return pieces;
}

inline grpc::Status Upload(const std::shared_ptr<grpc::Channel>& channel,
                           const v1::CheckpointBegin& begin, const FakeCheckpoint& checkpoint,
                           v1::CheckpointReceipt* receipt) {
  const auto stub = v1::Fleet::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto writer = stub->UploadCheckpoint(&context, receipt);
  v1::CheckpointUpload message;
  *message.mutable_begin() = begin;
  bool open = writer->Write(message);
  for (const v1::FilePiece& piece : PiecesOf(checkpoint)) {
    *message.mutable_piece() = piece;
    open = open && writer->Write(message);
  }
  writer->WritesDone();
  return writer->Finish();
}

// A small checkpoint in a coordinator's folder, and how it is damaged there. Thread-compatible.
inline v1::CheckpointRef StoreCheckpoint(const coordinator::CheckpointFolder& folder,
                                         const std::string& job, const FakeCheckpoint& checkpoint) {
  auto staged = folder.Stage(JobId(job), checkpoint.step, 64 << 20);
  RING_CHECK(staged.ok(), "a place to write to");
  for (const v1::FilePiece& piece : PiecesOf(checkpoint)) {
    RING_CHECK((*staged)->Write(piece).ok(), "it is written");
  }
  RING_CHECK((*staged)->Finish().ok(), "it is as its manifest says");
  const StatusOr<std::string> path = folder.Commit(**staged);
  RING_CHECK(path.ok(), "it is in its place");
  v1::CheckpointRef ref;
  ref.set_path(*path);
  ref.set_step(checkpoint.step);
  ref.set_sha256(checkpoint.manifest_sha256());
  return ref;
}

// One byte of its weights.
inline void Damage(const v1::CheckpointRef& ref) {
  std::fstream(ref.path() + "/model.safetensors", std::ios::in | std::ios::out) << "W";
}

}  // namespace ringmaster::testing
