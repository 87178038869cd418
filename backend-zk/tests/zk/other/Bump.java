import java.io.File;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Sets the counter of sequence numbers of a node in the files of a server that is not running. */
public class Bump {
    public static void main(String[] args) throws Exception {
        FileTxnSnapLog files = new FileTxnSnapLog(new File(args[0]), new File(args[0]));
        ZKDatabase database = new ZKDatabase(files);
        database.loadDataBase();
        DataNode node = database.getNode(args[1]);
        node.stat.setCversion(Integer.parseInt(args[2]));
        files.save(database.getDataTree(), database.getSessionWithTimeOuts(), true);
        files.close();
    }
}
