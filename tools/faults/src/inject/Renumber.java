import java.io.File;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Sets the counters of sequence numbers of all locks in the files of a server that is not running. */
public class Renumber {
    public static void main(String[] args) throws Exception {
        FileTxnSnapLog files = new FileTxnSnapLog(new File(args[0]), new File(args[0]));
        ZKDatabase database = new ZKDatabase(files);
        database.loadDataBase();
        int number = 0;
        for (String lock : database.getNode("/lockwell").getChildren()) {
            int next = number++ % 2 == 0 ? 1_500_000_000 : Integer.MAX_VALUE - 1_000_040;
            database.getNode("/lockwell/" + lock).stat.setCversion(next);
        }
        files.save(database.getDataTree(), database.getSessionWithTimeOuts(), true);
        files.close();
        if (number == 0) {
            throw new IllegalStateException("there are no locks");
        }
    }
}
