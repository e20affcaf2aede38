#pragma once
// A lock in the shared file that outlives its holder: if that died, `repair` runs before anyone else gets in.
#include <pthread.h>

#include <cerrno>

namespace tensor_fusion::sim::device {

inline void init_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

class RobustLock {
 public:
  template <typename Repair>
  RobustLock(pthread_mutex_t& mutex, Repair repair) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) {
      repair();
      pthread_mutex_consistent(&mutex_);
    }
  }
  ~RobustLock() { pthread_mutex_unlock(&mutex_); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace tensor_fusion::sim::device
