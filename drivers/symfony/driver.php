#!/usr/bin/env php
<?php
// Puts Symfony's lock component, with its RedisStore, under test:
//   lockchaos run --lock 'exec:drivers/symfony/driver.php' --topology single
// It answers one request at a time. An exception that is not about the lock
// itself is "info": what was asked for may have happened.

require_once 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\RedisStore;

const HELLO = [
    'protocol' => 1, 'name' => 'symfony/lock', 'version' => '5.4', 'language' => 'php',
    'promises' => ['kind' => 'mutex', 'extend' => true],
    'keys' => ['{name}'],
];

/** Finds the master, or the nodes of a cluster, and connects as a service would. */
function connect(array $hello): Redis|RedisCluster
{
    $timeout = ($hello['timeout_ms'] ?? 1000) / 1000;
    if (($hello['topology'] ?? '') === 'cluster') {
        return new RedisCluster(null, array_column($hello['servers'], 'addr'), $timeout, $timeout);
    }
    foreach ($hello['servers'] as $server) {
        [$host, $port] = explode(':', $server['addr']);
        $redis = new Redis();
        if (isset($hello['master'])) {
            try {
                $redis->connect($host, (int) $port, $timeout, null, 0, $timeout);
                $master = $redis->rawCommand('SENTINEL', 'get-master-addr-by-name', $hello['master']);
            } catch (RedisException $e) {
                continue;
            }
            [$host, $port] = $master;
            $redis = new Redis();
        }
        $redis->connect($host, (int) $port, $timeout, null, 0, $timeout);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        return $redis;
    }
    throw new RedisException('no server answers');
}

function say(array $answer): void
{
    fwrite(STDOUT, json_encode($answer)."\n");
}

/** The store counts whole milliseconds, and lets the next one in as the last one begins: up to 1 ms early. */
function valid(array $q): int
{
    return max($q['lease_ms'] - 1, 1);
}

function answer(array $q, array &$hello, Redis|RedisCluster|null &$redis, array &$holds): array
{
    switch ($q['op']) {
    case 'ping':
        return ['result' => 'ok'];
    case 'acquire':
        $redis ??= connect($hello);
        $key = new Key($q['lock']);
        try {
            (new RedisStore($redis, max($q['lease_ms'], 1) / 1000))->save($key);
        } catch (LockConflictedException $e) {
            return ['result' => 'fail', 'why' => 'taken'];
        } catch (LockExpiredException $e) {
            return ['result' => 'info', 'why' => 'granted too late'];
        }
        $holds['h'.$q['id']] = $key;
        return ['result' => 'ok', 'hold' => 'h'.$q['id'], 'valid_ms' => valid($q)];
    case 'extend':
        $redis ??= connect($hello);
        try {
            (new RedisStore($redis))->putOffExpiration($holds[$q['hold']], $q['lease_ms'] / 1000);
        } catch (LockConflictedException $e) {
            return ['result' => 'fail', 'why' => 'not held'];
        } catch (LockExpiredException $e) {
            return ['result' => 'info', 'why' => 'extended too late'];
        }
        return ['result' => 'ok', 'valid_ms' => valid($q)];
    case 'release':
        $redis ??= connect($hello);
        (new RedisStore($redis))->delete($holds[$q['hold']]);
        return ['result' => 'ok'];
    default:
        return ['result' => 'unsupported'];
    }
}

$hello = [];
$redis = null;
$holds = [];
while (($line = fgets(STDIN)) !== false) {
    $q = json_decode($line, true);
    if ($q['op'] === 'hello') {
        $hello = $q;
        if (($q['topology'] ?? '') === 'independent') {
            say(['re' => $q['id'], 'result' => 'fail', 'why' => 'this driver connects to one server, by sentinels, or to a cluster']);
            continue;
        }
        say(['re' => $q['id']] + HELLO);
        continue;
    }
    try {
        say(['re' => $q['id']] + answer($q, $hello, $redis, $holds));
    } catch (Throwable $e) {
        $redis = null; // the next request connects again, and finds the master of then
        say(['re' => $q['id'], 'result' => 'info', 'why' => get_class($e).': '.$e->getMessage()]);
    }
}
